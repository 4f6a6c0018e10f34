"""A pass of a document node by node: the digests of what each gives, forward and backward, and one node done again.

A trace lets two machines that differ find the node where they part, and a third compute that node alone. It knows
nothing of who asks, and why.
"""
