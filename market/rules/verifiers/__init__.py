"""What a ballot is and which ballots agree. One verifier a file."""
