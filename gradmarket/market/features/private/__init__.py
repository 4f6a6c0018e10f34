"""Private jobs: the privacy that a job may ask for, and the worth of its answers."""
