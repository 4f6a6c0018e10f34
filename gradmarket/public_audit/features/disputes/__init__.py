"""The hearings of a job whose answers were heard by a referee."""
