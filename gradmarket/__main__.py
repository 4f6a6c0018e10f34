"""`python -m gradmarket` does the same as the command `gradmarket`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the folder that it is run in: a researcher's own worker.py there would stand before our package

from gradmarket.cli import app

app()
