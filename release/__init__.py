"""`make release`: distributions built from a commit, with the same bytes for every builder; not installed."""
