"""The database rows, the only state that the service keeps: tables, sessions, and queries by subject."""
