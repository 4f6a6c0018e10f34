"""A task traced operation by operation, in a confined child (market.features.disputes.traced)."""
