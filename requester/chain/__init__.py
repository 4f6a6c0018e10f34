"""The requester's side of the contract: turns rows into transactions and outcomes into rows; pays nothing twice."""
