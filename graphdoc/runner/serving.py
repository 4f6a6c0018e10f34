"""A child's side of the pipes: its configuration, and its answers until the parent closes them. No torch.

The children's modules import everything that they need before `serve`, which restricts the process.
"""

import errno
import gc
import json
import os
import select
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from graphdoc.errors import GraphdocError, OutOfMemory, describe_exhaustion, is_out_of_memory
from graphdoc.runner import frames
from graphdoc.runner.confine import confine_process, forbid_driver_calls

Request = dict[str, Any]
IDLE_S: Final = 2.0
"""Seconds without a request after which memory is freed: of a card, milliseconds of the next step."""


@dataclass(frozen=True)
class Configuration:
    """The parent's message at the start: its process id, the descriptors of pipes and arena, the limits."""

    parent: int
    follow_parent: bool
    requests: int
    answers: int
    arena: int
    device: str
    threads: int
    memory_bytes: int
    operations: int
    bound_bytes: int
    graphs: bool = True
    """Whether passes on a card are recorded and replayed."""
    slots: int | None = None
    """The descriptor of the file by which processes share a card's memory."""
    warm_bytes: int = 0
    """Resident pages of files in the warm process that forked this one, which has them once it reads them."""


def parse_configuration() -> Configuration:
    return Configuration(**json.loads(sys.argv[1]))


def serve_requests(
    config: Configuration,
    greeting: Callable[[], str],
    answers: dict[str, Callable[[Request], Any]],
) -> None:
    """Confines this process, sends its determinism class, and answers requests by their `do` field.

    A process that waits for its next request frees the memory that it keeps for it (`release`). A card's driver starts
    with the greeting; the calls needed for that alone are forbidden before the first request is read.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # a shell starts background jobs ignoring them
        signal.signal(number, signal.SIG_DFL)
    tempfile.tempdir = os.sep  # libraries look for one on first use, and none is writable
    confined = confine_process(config.parent, config.follow_parent, config.device, config.memory_bytes)
    threading.Thread(target=_end_with, args=(config.requests,), daemon=True).start()
    greeted = _answer_request(lambda _request: {"determinism_class": greeting(), "confined": confined}, {})
    if config.device != "cpu" and "calls" in confined and not forbid_driver_calls():
        confined.remove("calls")
    gc.freeze()
    frames.send_frame(config.answers, greeted)
    while True:
        answer_next(config.requests, config.answers, answers)


def answer_next(
    requests: int, replies: int, answers: dict[str, Callable[[Request], Any]], idle_s: float | None = None
) -> None:
    """Answers one request; where none comes for `idle_s` (IDLE_S), calls `release` meanwhile, if the child has it."""
    wait_s = IDLE_S if idle_s is None else idle_s
    if "release" in answers and not select.select([requests], [], [], wait_s)[0]:
        answers["release"]({})
    request = frames.receive_frame(requests)
    frames.send_frame(replies, _answer_request(answers[request["do"]], request))


def _answer_request(act: Callable[[Request], Any], request: Request) -> dict[str, Any]:
    """Returns the answer to one request, or its error."""
    try:
        return {"ok": act(request)}
    except GraphdocError as error:
        return _encode_error(error)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return _encode_error(OutOfMemory("the memory that is shared could not be mapped"))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return _encode_error(OutOfMemory(describe_exhaustion(error)))


def _encode_error(error: GraphdocError) -> dict[str, Any]:
    return {"error": type(error).__name__, "detail": error.detail}


def _end_with(requests: int) -> None:
    """Ends this process as soon as the parent closes its end of the pipe, during any computation."""
    poll = select.poll()
    poll.register(requests, 0)
    poll.poll()
    os._exit(0)
