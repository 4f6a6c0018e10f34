"""The API's views of rows: amounts are decimal strings in smallest units, times are ISO 8601 in UTC."""
