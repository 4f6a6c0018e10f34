"""What an audit checks of features that a job may have: a folder each."""
