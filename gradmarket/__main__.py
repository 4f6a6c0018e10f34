"""`python -m gradmarket` does the same as the command `gradmarket`."""

from gradmarket.cli import app

app()
