"""`make test-cuda` and `make bench-cuda`: checks of a card on a machine with any recent torch and no network."""
