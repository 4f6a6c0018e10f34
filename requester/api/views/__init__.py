"""What the API shows of the rows: amounts as decimal strings in smallest units, times ISO 8601 UTC."""
