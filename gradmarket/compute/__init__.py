"""Fetches, caches and computes the task of an offer, for workers and auditors."""
