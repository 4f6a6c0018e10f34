"""Spans of requests, stages, transactions and merges, in a file that a setting names."""

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Final

from requester.feature import Feature
from requester.settings import RequesterSettings

SPAN_FILE: Final = "requester.features.tracing.span_file"
"""Imported where spans are written: it needs OpenTelemetry's SDK."""


def start_tracing(file: Path | None) -> AbstractContextManager[None]:
    """Appends this process's spans to the file, one JSON object a line, until the end of the block; None: no spans."""
    if file is None:
        return nullcontext()
    written: AbstractContextManager[None] = import_module(SPAN_FILE).write_spans(file)
    return written


class TracingFeature(Feature):
    name = "tracing"

    def record_process(self, settings: RequesterSettings) -> AbstractContextManager[None]:
        return start_tracing(settings.tracing)
