"""Parts of a merge, as arithmetic on arrays."""
