"""Where bytes lie, by their digest. One store a file."""
