"""`make test-cuda` and `make bench-cuda`: what a card does, on a machine with any recent torch and no network."""
