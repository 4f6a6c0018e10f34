"""The base of the service's benchmarks: a service of their own, and workers that only send messages."""
