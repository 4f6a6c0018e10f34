"""Changes of tasks, jobs and verdicts that several callers share, each within the caller's transaction."""
