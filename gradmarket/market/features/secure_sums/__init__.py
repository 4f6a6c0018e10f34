"""Secure aggregation: the requester learns the sum of a round's vectors and no vector of its own.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning", with each holder masking
against a few neighbours of a random graph as in Bell et al. 2020, "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead". The requester may lie. All rules are pure: entropy, keys and messages are arguments.

    holder                       requester
    1 keys, signed           ->  those of its neighbours
    2 sealed shares          ->  who shared, and the shares that are for it
    3 masked vector, signed  ->  whose vectors count
    4 signature of that set  ->  a quorum of signatures
    5 shares of one secret   ->  the sum
      of each neighbour

`degree` computes the number of neighbours, `aggregation` draws them, `holder` and `collector` have the messages and
refusals of each side. docs/secure_aggregation.md has the guarantees against each party, with the proof.
"""
