"""Tries forbidden actions of a computing child while kernels run; prints the attempts that succeeded as JSON."""

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from graphdoc.runner.card_class import start_cuda
from graphdoc.runner.confine import confine_process, forbid_driver_calls


def main(device: str) -> None:
    held = confine_process(os.getppid(), False, device, 2**33)
    if device != "cpu":
        start_cuda()
        if not forbid_driver_calls():
            held.remove("calls")
    ended = threading.Event()
    kernels = threading.Thread(target=_compute, args=(device, ended))
    kernels.start()
    done = [name for name, attempt in list_attempts() if not _is_refused(attempt)]
    ended.set()
    kernels.join()
    print(json.dumps({"held": held, "done": done}))


def list_attempts() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yields each attempt by its name."""
    parent = Path("/proc", str(os.getppid()))
    yield "AF_INET", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    yield "UNIX stream", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    yield "UNIX seqpacket", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield "socket pair", socket.socketpair
    yield "/etc/shadow", Path("/etc/shadow").read_bytes
    yield "/etc/passwd", Path("/etc/passwd").read_bytes
    yield "parent's environment", (parent / "environ").read_bytes
    yield "parent's memory", (parent / "mem").open
    yield "a new file", Path("/tmp/gradmarket-probe").touch
    yield "a new device", lambda: os.mknod("/dev/gradmarket-probe", 0o020600, os.makedev(195, 200))
    yield "another device", lambda: os.open("/dev/zero", os.O_RDWR)
    yield "fork", _fork
    yield "program", lambda: os.posix_spawn("/bin/true", ["true"], {})
    yield "signal", lambda: os.kill(os.getppid(), 0)


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _is_refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False


def _compute(device: str, ended: threading.Event) -> None:
    values = torch.ones(512, 512, device=device)
    while not ended.is_set():
        values = values @ values / 512
    values.sum().item()


if __name__ == "__main__":
    main(sys.argv[1])
