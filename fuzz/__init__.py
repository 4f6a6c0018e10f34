"""Hostile input, made from honest input: any input of a stranger is read, or refused by our own error. Nothing else.

`kinds/` has one file for each format that strangers send; case n of a kind is always the same. `make fuzz CASES=n`
plays cases in children over all cores, `make fuzz SEED=kind/n` plays one again, `make test` the first five hundred,
`make test-all` fifteen hundred more.
"""
