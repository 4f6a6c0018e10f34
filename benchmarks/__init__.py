"""Measurements, one command a file. A timing is never a test; ratios are taken in one run on one machine."""
