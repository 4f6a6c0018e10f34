"""What requester, workers, auditors and holders send each other, as JSON and as framed bytes."""
