"""Datasets that come with the service, so that a job can be posted with curl alone. One a file."""
