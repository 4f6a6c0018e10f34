"""Kernels whose bits depend on no machine: not on its threads, its vector width, its vendor or its libraries' versions.

They consist of operations that torch rounds as IEEE 754 specifies (+, -, *, /, comparisons, conversions; not its square
root), of functions that are rounded correctly (functions), and of sums in which nothing is rounded (exact), so that
their order is free. A multiply-add is two roundings everywhere. Numbers under 1.2e-38 are 0.
"""
