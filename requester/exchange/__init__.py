"""Handles requests of workers and auditors, each in one transaction; called by the routes of `requester/api`."""
