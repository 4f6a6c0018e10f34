"""What moves rows from one state to the next. A stage is `ready(session, now) -> ids` and `run(context, id)`.

    publish -> settle -> plan -> assign -> (collect) -> close -> judge -> (deliver) -> aggregate -> plan …
                                    expire: whoever answers nobody         settle: all that is on-chain
    (deliver) -> (auditors) -> audit -> aftermath: a round is taken back, or final

`run` is idempotent and one transaction; a row in the next state *is* the call, so stages never call each other and
losing a notification loses nothing. `collect`, `deliver` and `auditors` are what workers and auditors bring in: the same
transactions, by the HTTP door.
"""
