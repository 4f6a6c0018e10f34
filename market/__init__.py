"""What requester and worker must agree on. Pure: no socket, file, database, clock, global random state or logging."""
