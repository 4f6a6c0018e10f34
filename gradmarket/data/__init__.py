"""A researcher's own data for the market: read, cut into partitions, uploaded."""
