"""Parts of features that run in the runner's child, one folder for each feature."""
