"""The requester's service: publishes jobs, draws workers, judges, pays and merges."""
