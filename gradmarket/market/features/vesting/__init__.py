"""Vesting: what of a worker's pay is locked, and when it is accused."""
