"""Other software's rounds over recorded gradients; each file runs in its own environment (`make bench-peers`).

`python FILE ELEMENTS COUNT` prints the seconds of COUNT rounds of two workers as a JSON list.
"""
