"""A market in miniature: thousands of workers, honest and not, under the rules of market.rules themselves.

Draws, votes, audits and reputations are those of the service. Only work, network and time are made up: seeded events,
one after the other, so that a play can be repeated to the last decision.
"""
