"""Who may do what, and what it earns."""
