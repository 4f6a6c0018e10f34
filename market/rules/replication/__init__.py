"""How many replicas a task gets, and when to ask for another. One policy a file."""
