"""A task operation by operation, as a dispute asks for it: its plan, what each operation gives, and one done again.

The plan is a list that everybody makes alike from the job: the drawn rows, the round's parameters, every node forward
and backward, microbatch by microbatch, the means, the inner optimizer's moves, the packed shards, the payload's root.
"""
