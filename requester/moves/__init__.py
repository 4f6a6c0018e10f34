"""What happens to a task, a job or a verdict: changes of rows within the caller's transaction."""
