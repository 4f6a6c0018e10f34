"""Runs a task, given its offer: what is fetched, kept and computed. Workers and auditors use it."""
