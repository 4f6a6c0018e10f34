"""Handles requests of workers, each in one transaction; called by the routes of `requester/api`."""
