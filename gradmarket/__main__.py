"""`python -m gradmarket`: the same as the command `gradmarket`."""

from gradmarket.cli import app

app()
