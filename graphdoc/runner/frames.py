"""Length-prefixed JSON over pipes. Nothing here or above unpickles, so a broken child cannot take over its parent."""

import json
import os
import select
import time
from typing import Any, Final

LENGTH: Final = 4
FRAME_LIMIT: Final = 16 * 2**20


class Broken(Exception):
    """The other side closed the pipe or does not speak the protocol."""


class FrameTimeout(Exception):
    """The deadline passed."""


def send_frame(descriptor: int, message: dict[str, Any], deadline: float | None = None) -> None:
    """Writes one message; `deadline` (time.monotonic()) needs a non-blocking pipe. Raises Broken, FrameTimeout."""
    body = json.dumps(message, separators=(",", ":")).encode()
    waiting = memoryview(len(body).to_bytes(LENGTH, "big") + body)
    while waiting:
        _wait_for_pipe(descriptor, select.POLLOUT, deadline)
        try:
            waiting = waiting[os.write(descriptor, waiting) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise Broken(str(error)) from None


def receive_frame(descriptor: int, deadline: float | None = None) -> dict[str, Any]:
    """Reads one message. Raises Broken, FrameTimeout."""
    length = int.from_bytes(_read_exactly(descriptor, LENGTH, deadline), "big")
    if length > FRAME_LIMIT:
        raise Broken(f"a message of {length} bytes")
    try:
        message = json.loads(_read_exactly(descriptor, length, deadline))
    except (ValueError, RecursionError):
        raise Broken("the message is not JSON") from None
    if not isinstance(message, dict):
        raise Broken("the message is not a JSON object")
    return message


def _read_exactly(descriptor: int, count: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while count:
        _wait_for_pipe(descriptor, select.POLLIN, deadline)
        try:
            part = os.read(descriptor, min(count, 2**20))
        except BlockingIOError:
            continue
        except OSError as error:
            raise Broken(str(error)) from None
        if not part:
            raise Broken("the pipe was closed")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _wait_for_pipe(descriptor: int, event: int, deadline: float | None) -> None:
    if deadline is None:
        return
    poll = select.poll()
    poll.register(descriptor, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise FrameTimeout
