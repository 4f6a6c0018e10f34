"""The rules of the market: the rights of its parties, and their pay. All are pure functions."""
