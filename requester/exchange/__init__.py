"""What workers and auditors bring and ask for: a transaction each, called by the routes of `requester/api`."""
