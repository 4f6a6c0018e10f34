"""A job's rows: the manifest that names its partitions, and the formats that partitions may have."""
