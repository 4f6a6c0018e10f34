"""The HTTP doors: they check who knocks, hand the work to stages and store, and decide nothing."""
