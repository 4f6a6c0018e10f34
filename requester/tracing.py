"""Spans of requests, stages, transactions and their parts, by OpenTelemetry; nothing is recorded unless `started`."""

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Final

from opentelemetry import trace

TRACER: Final = trace.get_tracer("gradmarket")
"""Until a provider is set its spans do nothing, and take a few microseconds."""
SPAN_FILE: Final = "requester.span_file"


def record_span(name: str) -> AbstractContextManager[trace.Span]:
    """Records what the block takes, as a part of the span around it."""
    return TRACER.start_as_current_span(name)


def start_tracing(file: Path | None) -> AbstractContextManager[None]:
    """Appends this process's spans to the file, one JSON object a line, until the end of the block; None: no spans."""
    if file is None:
        return nullcontext()
    written: AbstractContextManager[None] = import_module(SPAN_FILE).write_spans(file)
    return written
