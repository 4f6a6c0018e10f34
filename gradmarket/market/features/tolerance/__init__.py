"""Tolerance: thresholds within which answers of different classes agree, from tasks that were computed twice."""
