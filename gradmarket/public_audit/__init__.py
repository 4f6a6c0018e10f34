"""The audit of a job by anybody: from what its market publishes, a chain node of one's own, and one's own computing."""
