"""Free identities: newcomers work alone and audited, proven ones vote (seat_rules)."""
