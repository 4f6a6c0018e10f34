"""The answers of the API, one model for the service and for all clients.

Amounts are decimal strings in smallest units, times are ISO 8601 in UTC. Unknown fields are ignored.
"""
