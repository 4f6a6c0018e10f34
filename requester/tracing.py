"""Spans of requests, stages, transactions and their parts, by OpenTelemetry; nothing is recorded unless `started`."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

TRACER: Final = trace.get_tracer("gradmarket")
"""Until a provider is set its spans do nothing, and take a few microseconds."""


def span(name: str) -> AbstractContextManager[trace.Span]:
    """Records what the block takes, as a part of the span around it."""
    return TRACER.start_as_current_span(name)


@contextmanager
def started(file: Path | None) -> Iterator[None]:
    """Appends this process's spans to the file, one JSON object a line, until the end of the block; None: no spans."""
    if file is None:
        yield
        return
    provider = TracerProvider()
    with file.open("a", buffering=1) as lines:
        written = ConsoleSpanExporter(out=lines, formatter=lambda one: one.to_json(indent=None) + "\n")
        provider.add_span_processor(BatchSpanProcessor(written))
        trace.set_tracer_provider(provider)
        try:
            yield
        finally:
            provider.shutdown()
