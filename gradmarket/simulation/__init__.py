"""A small simulated market: thousands of honest and dishonest workers under the rules of market.rules.

Draws, votes, audits and reputations are those of the service. Only work, network and time are simulated, as seeded
events in order, so that every run can be repeated exactly.
"""
