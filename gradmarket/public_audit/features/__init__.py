"""An audit's checks of a job's features, one folder for each."""
