"""A child's side of the pipes: its configuration, and how it answers until the parent closes them. No torch.

The children's modules import everything that they need before `serve`, which restricts the process.
"""

import errno
import gc
import json
import os
import select
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphdoc.errors import GraphdocError, OutOfMemory, says_out_of_memory
from graphdoc.runner import frames
from graphdoc.runner.confine import confine

Request = dict[str, Any]


@dataclass(frozen=True)
class Configuration:
    """What the parent passes at the start: its process id, the descriptors of pipes and arena, the limits."""

    parent: int
    follow_parent: bool
    requests: int
    answers: int
    arena: int
    device: str
    threads: int
    memory_bytes: int
    operations: int


def configuration() -> Configuration:
    return Configuration(**json.loads(sys.argv[1]))


def serve(config: Configuration, greeting: Callable[[], str], answers: dict[str, Callable[[Request], Any]]) -> None:
    """Confines this process, sends its determinism class, and answers requests by their `do` field."""
    tempfile.tempdir = os.sep  # libraries look for one on first use, and none is writable
    confined = confine(config.parent, config.follow_parent, config.device, config.memory_bytes)
    threading.Thread(target=_end_with, args=(config.requests,), daemon=True).start()
    greeted = _answer(lambda _request: {"determinism_class": greeting(), "confined": confined}, {})
    gc.freeze()
    frames.send(config.answers, greeted)
    while True:
        request = frames.receive(config.requests)
        frames.send(config.answers, _answer(answers[request["do"]], request))


def _answer(act: Callable[[Request], Any], request: Request) -> dict[str, Any]:
    """Returns the answer to one request, or the error that it ended with."""
    try:
        return {"ok": act(request)}
    except GraphdocError as error:
        return _encoded(error)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return _encoded(OutOfMemory("the memory that is shared could not be mapped"))
    except (MemoryError, RuntimeError) as error:
        if not says_out_of_memory(error):
            raise
        return _encoded(OutOfMemory())


def _encoded(error: GraphdocError) -> dict[str, Any]:
    return {"error": type(error).__name__, "detail": error.detail}


def _end_with(requests: int) -> None:
    """Ends this process as soon as the parent closes its end of the pipe, whatever is being computed."""
    poll = select.poll()
    poll.register(requests, 0)
    poll.poll()
    os._exit(0)
