"""Stages move rows from one state to the next. A stage is `ready(reader, now) -> ids` and `run(context, id)`.

    publish -> settle -> plan -> assign -> (commitments) -> close -> judge -> (payload upload) -> aggregate -> plan …
                          expire: leases and uploads whose deadline has passed             settle: everything on-chain
                                                                    collect: blobs and rows of ended jobs

`run` is idempotent and one transaction. Stages never call each other: a row in the next state triggers the next stage,
so a lost notification loses nothing. Changes of rows that several stages make are in `requester/moves`. Requests of
workers and auditors are handled in `requester/exchange`, which the HTTP routes call.
"""
