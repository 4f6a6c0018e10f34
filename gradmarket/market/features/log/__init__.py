"""The log of a job: its leaves, its signed heads, and their proofs."""
