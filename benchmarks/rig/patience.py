"""How long a benchmark waits for an answer or an event: far beyond what a busy machine needs."""

from typing import Final

PATIENCE_S: Final = 900.0
