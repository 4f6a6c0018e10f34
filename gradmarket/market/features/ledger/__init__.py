"""A job's money in double entry, as arithmetic."""
