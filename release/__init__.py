"""`make release`: what is given to others, built from a commit so that anybody builds the same bytes; not installed."""
