"""Commands of features: one folder for each feature that has some."""
