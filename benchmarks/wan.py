"""Workers behind slow, breaking links of 50 ms: bytes sent twice, and share of time computing.

`wan.utilisation.UP_DOWN`: the share of a worker's time that goes into its steps, at these Mbit/s up and down.
"""

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figure import Figure
from benchmarks.rig.link import Link, Relay, relayed, seldom
from benchmarks.rig.rounds import GPT_10M, Pace, measured
from benchmarks.rig.service import Service, service
from benchmarks.rig.workers import Worker, payload_of
from benchmarks.size import sized
from gradmarket.market.wire.framing import PIECE, sent_bytes
from gradmarket.market.wire.poll import PayloadPart, PollAnswer, PollRequest
from worker.protocol.client import MarketClient
from worker.protocol.outgoing import Payload

PREFIX = "wan"
LINKS = sized((Link(110, 500), Link(100, 100), Link(20, 100)), (Link(110, 500),))
HIDDEN = sized((2100, 2100), (700, 700))
"""Settings of the perceptron whose gradient of 18 MB breaks off repeatedly."""
BREAKS_AFTER = sized((2_500_000, 900_000, 7_300_000, 4_000_001), (300_000, 900_000))
"""Bytes up of the connections that break, one after the other."""
STEP_S = float(os.environ.get("WAN_STEP_S", sized("20", "0.1")))
COUNT = int(os.environ.get("WAN_ROUNDS", sized("3", "1")))


class Cut(Worker):
    """Brings its payload as `gradmarket worker` does, through a relay."""

    def __init__(self, here: Service, relay: Relay, folder: Path, payload: bytes) -> None:
        super().__init__(here, payload=payload)
        self._file = folder / "payload"
        self._file.write_bytes(payload)
        self._client = MarketClient(relay.url)
        self._client.bearer = lambda: {"authorization": f"Bearer {self.token}"}  # type: ignore[method-assign]

    def poll(self, payload: bytes = b"", **fields: Any) -> PollAnswer:
        if not fields.get("payloads"):
            return super().poll(payload, **fields)
        parts = tuple(part.model_copy(update={"start": 0}) for part in fields.pop("payloads"))
        request = PollRequest(determinism_class="bench", known=self._known, payloads=parts, **fields)
        return self._client.poll(request, [self._payload(part) for part in parts])

    def _payload(self, part: PayloadPart) -> Payload:
        return Payload(self._file, lambda: None, part)


def measure() -> Iterator[Figure]:
    yield _resumed()
    for link in sized(LINKS, ()):  # wan.step_s plays the smallest rounds over a link
        yield _utilised(link)


def _resumed() -> Figure:
    """Bytes that reached the service twice, beyond one piece for each connection that broke."""
    breaks = iter(BREAKS_AFTER)
    payload, relay = payload_of(*HIDDEN), Relay(LINKS[0], lambda: next(breaks, float("inf")))
    job: dict[str, Any] = {"model": {"architecture": "mlp", "arguments": {"hidden": list(HIDDEN)}}}
    with relayed(relay), service(shared=False) as here, tempfile.TemporaryDirectory() as folder:
        here.post(**job, replication={"name": "fixed", "replicas": 1, "max_replicas": 1})
        Cut(here, relay, Path(folder), payload).batch()
    twice = relay.up.passed - sent_bytes(len(payload), 0)
    beyond = max(0, twice - relay.broken * PIECE)
    note = (
        f"{len(payload) / 1e6:.3g} MB; {relay.broken} connections broke, {twice / 1e6:.3g} MB came twice or as headers"
    )
    return Figure("wan.resumed", beyond, "bytes", target="<= 0", note=note)


def _utilised(link: Link) -> Figure:
    """Two workers behind one such link, R = 1; 10.8 million parameters, two bits an element either way."""
    relay = Relay(link, seldom(random.Random(0), 1 << 22))
    with relayed(relay), service(shared=False, settings={"GRADMARKET_URL": relay.url}) as here:
        pace = Pace(seconds=STEP_S, job={"uplink": {"codec": "two_bit"}, "downlink": {"codec": "two_bit"}})
        taken = sorted(measured(here, GPT_10M, 1, COUNT, pace).seconds)
    note = (
        f"steps of {STEP_S:g} s, {len(taken)} rounds of {taken[0]:.3g} to {taken[-1]:.3g} s; two workers share the link"
    )
    return Figure(f"wan.utilisation.{link.name}", STEP_S / median(taken), "", target=">= 0.8", note=note)
