"""A researcher's own data on its way to the market: read, cut into partitions, uploaded."""
