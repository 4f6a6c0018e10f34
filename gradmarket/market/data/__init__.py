"""A job's rows: the manifest that lists its partitions, and the file formats of partitions."""
