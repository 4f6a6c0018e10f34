"""A pass of a document node by node: the digests of each node's results, forward and backward, and one node done again.

A trace allows two machines that differ to find the node where they first do, and a third to compute that node alone. It
does not depend on its caller or purpose.
"""
