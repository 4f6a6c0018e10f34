"""Longest wait of a benchmark for an answer or an event: far beyond the needs of a busy machine."""

from typing import Final

PATIENCE_S: Final = 900.0
