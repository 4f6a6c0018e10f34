"""Private jobs: what such a job may ask for, and what its answers are worth."""
