"""The counts of one process since its start. Counts that must survive a restart are read from the rows (tallies).

Beside them, spans of requests, stages, transactions and their parts, by OpenTelemetry, where the process traces.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from opentelemetry import trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REQUEST_S: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)
STAGE_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Meters:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "gradmarket_request_seconds",
            "Seconds from a request's headers to its answer's end",
            ["method", "route", "status"],
            buckets=REQUEST_S,
            registry=self.registry,
        )
        self.bytes = Counter(
            "gradmarket_http_bytes",
            "Bytes of bodies, as their Content-Length declares them; up: to the service",
            ["direction", "route"],
            registry=self.registry,
        )
        self.limited = Counter("gradmarket_rate_limited", "Requests refused with 429", ["by"], registry=self.registry)
        self.polls = Gauge("gradmarket_long_polls_open", "Workers' polls that wait for news", registry=self.registry)
        self.streams = Gauge("gradmarket_event_streams_open", "Event streams being followed", registry=self.registry)
        self.stages = Histogram(
            "gradmarket_stage_seconds",
            "Seconds a stage took for a row",
            ["stage"],
            buckets=STAGE_S,
            registry=self.registry,
        )
        self.failures = Counter(
            "gradmarket_stage_failures", "Rows that a stage failed at", ["stage"], registry=self.registry
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times one row's run, and counts it where it fails."""
        began = time.perf_counter()
        try:
            yield
        except Exception:
            self.failures.labels(name).inc()
            raise
        finally:
            self.stages.labels(name).observe(time.perf_counter() - began)


TRACER: Final = trace.get_tracer("gradmarket")
"""Until a provider is set its spans do nothing, and take a few microseconds."""


def record_span(name: str) -> AbstractContextManager[trace.Span]:
    """Records the block's duration, as a part of the span around it."""
    return TRACER.start_as_current_span(name)
