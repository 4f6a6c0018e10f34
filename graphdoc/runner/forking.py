"""The warm process: it has imported a child's module, computes nothing, and forks a child for each request.

warm_start.py runs it as `python -I -m graphdoc.runner.forking <descriptor of the socket> <pid of the parent>`. It ends
with its parent, or with its last child where that has closed the socket; its children end with it. It holds nothing
secret and gives children no way back; they share only the places of libraries in memory.
"""

import gc
import importlib
import json
import os
import select
import socket
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from graphdoc.runner.allowance import file_bytes

MESSAGE_LIMIT: Final = 2**16
DESCRIPTORS: Final = ("requests", "answers", "arena", "diagnostics", "status")
"""The descriptors sent with a request, in this order: the child's first three, its standard error, and the pipe for its
return code, as subprocess gives it."""


@dataclass(frozen=True)
class Forked:
    """A child that runs: its process id, and the pipe that gets its return code."""

    pid: int
    status: int


class WarmParent:
    """Answers requests of the process at the other end of `control`, and waits for the children."""

    def __init__(self, control: socket.socket, parent: int) -> None:
        self._control, self._parent = control, os.pidfd_open(parent)
        self._children: dict[int, Forked] = {}
        self._poll = select.poll()
        for descriptor in (control.fileno(), self._parent):
            self._poll.register(descriptor, select.POLLIN)
        if os.getppid() != parent:
            sys.exit()

    def serve_requests(self) -> None:
        """Serves requests until the other end's process has ended, or the connection is closed and no child runs."""
        asked = True
        while asked or self._children:
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            if self._parent in ready:
                return
            for descriptor in ready:
                if descriptor in self._children:
                    self._reap_child(descriptor)
                elif not self._answer_request():
                    self._poll.unregister(descriptor)
                    asked = False

    def _answer_request(self) -> bool:
        """Forks a child and sends its process id and a descriptor of it; 0 and none where a fork is not safe. Returns
        whether a request came."""
        message, received = b"", list[int]()
        with suppress(ConnectionResetError):  # an answer that came too late was not read
            message, received, _, _ = socket.recv_fds(self._control, MESSAGE_LIMIT, len(DESCRIPTORS))
        if not message:
            return False
        given = dict(zip(DESCRIPTORS, received, strict=True))
        request = json.loads(message)
        with suppress(Exception):  # the child meets it again, and reports it
            importlib.import_module(request["module"])
        gc.collect()
        gc.freeze()  # a collection would write to pages that children share
        alone = len(os.listdir("/proc/self/task")) == 1
        pid = self._fork(request, given) if alone else 0
        for name in DESCRIPTORS[:-1] if pid else DESCRIPTORS:
            os.close(given[name])
        descriptors = [os.pidfd_open(pid)] if pid else []
        for descriptor in descriptors:
            self._children[descriptor] = Forked(pid, given["status"])
            self._poll.register(descriptor, select.POLLIN)
        with suppress(BrokenPipeError):  # nobody waits any more or has the other ends of the child's pipes: it ends
            socket.send_fds(self._control, [json.dumps({"pid": pid}).encode()], descriptors)
        return True

    def _fork(self, request: dict[str, Any], given: dict[str, int]) -> int:
        configuration = request["configuration"] | {name: given[name] for name in DESCRIPTORS[:3]}
        configuration |= {"parent": os.getpid(), "follow_parent": True, "warm_bytes": file_bytes()}
        pid = os.fork()
        if not pid:
            self._become_child(request["module"], configuration, given)
        return pid

    def _reap_child(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        child = self._children.pop(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(child.pid, 0)
        with suppress(BrokenPipeError):
            os.write(child.status, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(child.status)

    def _become_child(self, module: str, configuration: dict[str, Any], given: dict[str, int]) -> NoReturn:
        """Closes the warm process's own resources, and serves like a process that was started with this module."""
        code = 1
        try:
            self._control.detach()
            os.setsid()
            os.dup2(given["diagnostics"], sys.stderr.fileno())
            close_descriptors_but([0, 1, 2, *(given[name] for name in DESCRIPTORS[:3])])
            sys.argv = [module, json.dumps(configuration)]
            importlib.import_module(module).serve()
            code = 0
        except BaseException:  # noqa: BLE001  # as an interpreter ends
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)


def close_descriptors_but(kept: list[int]) -> None:
    """Closes every descriptor of this process that is not among these."""
    kept = sorted(kept)
    for before, after in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(before + 1, after)


def main() -> None:
    """Serves until the parent is gone."""
    descriptor, parent = map(int, sys.argv[1:])
    WarmParent(socket.socket(fileno=descriptor), parent).serve_requests()
    os._exit(0)  # at once: its children end with it


if __name__ == "__main__":
    main()
