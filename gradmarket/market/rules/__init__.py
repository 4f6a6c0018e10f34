"""The rules of the market: who may do what, and what it earns. All are pure functions."""
