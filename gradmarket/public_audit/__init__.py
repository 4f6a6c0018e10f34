"""The public audit of a job: from its market's publications, the auditor's own chain node and own computation."""
