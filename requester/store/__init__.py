"""The rows that are the service's only memory: tables, sessions, queries by subject."""
