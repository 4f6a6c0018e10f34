"""The features' rules: one folder for each feature that has some."""
