"""What a token may spend in a day, as arithmetic."""
