"""What moves rows from one state to the next. A stage is `ready(session, now) -> ids` and `run(context, id)`.

    publish -> settle -> plan -> assign -> (commitments) -> close -> judge -> (payload upload) -> aggregate -> plan …
                          expire: leases, waves and uploads whose deadline has passed      settle: all that is on-chain
    (payload upload) -> (auditor claims) -> audit -> rollback: a round is taken back, or becomes final

`run` is idempotent and one transaction. A row in the next state *is* the call: stages never call each other, and a lost
notification loses nothing. What several stages do to a row is in `requester/moves`; what workers and auditors bring in
is in `requester/exchange`, which the HTTP routes call.
"""
