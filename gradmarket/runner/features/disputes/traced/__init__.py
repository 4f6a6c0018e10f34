"""A task operation by operation, as a dispute needs it: its plan, each operation's results, and one operation redone.

The plan is a list that every machine derives alike from the job: the drawn rows, the round's parameters, every node
forward and backward, microbatch by microbatch, the means, the inner optimizer's moves, the packed shards, the payload's
root.
"""
