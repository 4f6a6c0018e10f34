"""Writes this process's spans to a file. Only a service that traces imports OpenTelemetry's SDK."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter


@contextmanager
def write_spans(file: Path) -> Iterator[None]:
    """Appends the spans to the file, one JSON object a line, until the end of the block."""
    provider = TracerProvider()
    with file.open("a", buffering=1) as lines:
        exporter = ConsoleSpanExporter(out=lines, formatter=lambda one: one.to_json(indent=None) + "\n")
        provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        try:
            yield
        finally:
            provider.shutdown()
