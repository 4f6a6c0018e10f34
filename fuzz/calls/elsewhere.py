"""Calls in another process: the same call in memory full of another byte, or the memory that a call takes."""

import json
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from fuzz.calls.arrays import POISONS, from_the_heap, from_the_system
from fuzz.calls.making import Finding, answer
from fuzz.calls.taking import taken
from gradmarket.market.errors import DocumentRefused

ANSWERING: Final = (sys.executable, "-m", "fuzz.calls.elsewhere", "answer")
MEASURING: Final = (sys.executable, "-m", "fuzz.calls.elsewhere", "taken")
ENDED_AFTER: Final = 10
"""Seconds of processor time after which a call is taken to be endless, and the process ends."""


class Elsewhere:
    """One process at a time: one that ended is replaced, and the call that ended it is a finding."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process = self._started()

    def begun(self, key: str, written: list[Any]) -> Callable[[], str]:
        """Sends the call; the returned function waits for the answer. Raises Finding."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([key, written]) + "\n")
        self._process.stdin.flush()
        return self._answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.communicate()
            code, self._process = self._process.returncode, self._started()
            raise Finding(f"the other process ended with {signal.Signals(-code).name if code < 0 else code}")
        reply: dict[str, str] = json.loads(line)
        if "finding" in reply:
            raise Finding(reply["finding"])
        if "refused" in reply:
            raise DocumentRefused(reply["refused"])
        return reply["answer"]

    def _started(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def prepare() -> None:
    """Sets what graphdoc.runner.child sets, but leaves uninitialised memory, so that a read of it is found."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def _answered(key: str, written: list[Any]) -> str:
    return answer(key, written, POISONS[1])


def _taken(key: str, written: list[Any]) -> str:
    taken(key, written)
    return ""


def _compute_elsewhere(ask: Callable[[str, list[Any]], str], key: str, written: list[Any]) -> dict[str, str]:
    signal.setitimer(signal.ITIMER_PROF, ENDED_AFTER)
    try:
        return {"answer": ask(key, written)}
    except Finding as finding:
        return {"finding": str(finding)}
    except DocumentRefused as error:
        return {"refused": error.detail}


def main() -> None:
    """Answers lines until there are no more."""
    prepare()
    answering = sys.argv[1] == "answer"
    ask = _answered if answering else _taken
    torch.utils.deterministic.fill_uninitialized_memory = not answering  # as the child: taken memory is then resident
    (from_the_heap if answering else from_the_system)()
    for line in sys.stdin:
        print(json.dumps(_compute_elsewhere(ask, *json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
