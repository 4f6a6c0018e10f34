"""Forecasts of a job's safety before money is spent, by the rules that the service follows."""
