"""What the runner's child does for features: one folder for each feature that has some."""
