"""The rules shared by requester and worker. Pure: no socket, file, database, clock, global random state or logging."""
