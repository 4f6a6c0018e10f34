"""Vesting: the part of a worker's pay that is locked, and the time of an accusation against it."""
