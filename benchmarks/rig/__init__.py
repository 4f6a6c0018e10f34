"""What the benchmarks of the service stand on: a service of their own, and workers of nothing but words."""
