"""The messages between requester, workers, auditors and holders, as JSON and as framed bytes."""
