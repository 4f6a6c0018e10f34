"""Uploads that are left half done, to be continued at offsets of the cheat's own choice, by another, or otherwise."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import httpx

from gradmarket.market.wire import framing
from gradmarket.market.wire.poll import Answer, PayloadPart, PollAnswer, PollRequest
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST
from tests.kit.scripted import Held
from tests.patience import wait_until

HIDDEN = 4096
LENGTH = 4 * (1 + 64 * HIDDEN + HIDDEN + 10 * HIDDEN + 10)
"""Bytes of a payload of the job: two pieces."""
LARGE = {
    "model": {"architecture": "mlp", "arguments": {"hidden": [HIDDEN]}},
    "data": {"ready": "digits"},
    "replication": {"name": "fixed", "replicas": 1, "max_replicas": 1},
    "deadlines": {"lease_s": 60, "wave_s": 60, "upload_s": 5},
}


ALL = 9
"""More pieces than the payload has."""


class Cut(Exception):
    """The connection."""


def body(worker: ScriptedWorker, held: Held, start: int, payload: bytes, pieces: int) -> Iterator[bytes]:
    """Sends the answer and `pieces` pieces from `start` on; then the connection breaks, unless that is all."""
    said = Answer(commitment=worker.commitment(held), salt=held.salt, root=held.root)
    part = PayloadPart(replica=held.lease.replica, fence=held.lease.fence, start=start)
    yield framing.frame_poll_request(PollRequest(answers=(said,), payloads=(part,), wait_s=0.0))
    for size in framing.list_piece_sizes(len(payload), start):
        if pieces == 0:
            raise Cut
        piece, pieces, start = payload[start : start + size], pieces - 1, start + size
        yield framing.piece_digest(piece) + piece


def sent(worker: ScriptedWorker, held: Held, start: int, payload: bytes, pieces: int = ALL) -> str:
    sending = body(worker, held, start, payload, pieces)
    with suppress(Cut):
        # a whole body has its length, as those of workers have: where a chunked one is refused, the service resets the
        # connection after some bytes more, and the answer may be lost
        content = b"".join(sending) if pieces == ALL else sending
        told = worker.http.post("/v1/work/answers", content=content)
        if told.status_code == httpx.codes.OK:
            refusals = PollAnswer.model_validate_json(told.content).refusals
            return "+".join(sorted({item.code for item in refusals})) or "taken"
        return str(told.status_code)
    return "cut"


def there(worker: ScriptedWorker, held: Held) -> int:
    place = f"/v1/work/payloads/{held.lease.replica}/{held.lease.fence}"
    return int(worker.http.get(place).json()["received"])


@attack(
    "half an upload continued elsewhere, by another or with other bytes",
    "offsets 409; another not_found, sees 0; other bytes conflict; left 0; after the time withheld 0",
)
def two_halves_that_are_no_whole(scene: Scene) -> str:
    """Made-up bytes, to whose root it commits: no other worker votes. It ends with nothing, and a strike."""
    job = scene.post(**LARGE)
    cheat, other = job.team(HONEST, HONEST)
    lease = cheat.lease()
    payload = os.urandom(LENGTH)
    held = replace(lease, payload=payload, salt=framing.piece_digest(payload))
    cheat.held[lease.lease.replica] = held
    wait_until(lambda: sent(cheat, held, 0, payload, 1) and there(cheat, held) == framing.PIECE, "half of it is there")
    offsets = {sent(cheat, held, start, payload) for start in (1, framing.PIECE + 1, 2 * framing.PIECE, 2**62)}
    stolen, seen = sent(other, held, framing.PIECE, payload), there(other, held)
    spoiled = sent(cheat, held, framing.PIECE, bytes(LENGTH))
    left = there(cheat, held)
    wait_until(lambda: cheat.poll() and not cheat.open(), "its time is over")
    words = f"offsets {'+'.join(sorted(offsets))}; another {stolen}, sees {seen}; other bytes {spoiled}; left {left}"
    scene.requester.post(f"/v1/jobs/{job.id}/cancel")
    return f"{words}; after the time {cheat.states} {job.paid(cheat)}"
