"""The requester's side of the contract: rows become transactions and back, and nothing is paid twice."""
