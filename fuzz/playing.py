"""Cases played in children, which may crash, hang or be killed: the parent only reads their reports."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from fuzz.case import KINDS, seed_of
from fuzz.child import Outcome

ROOT: Final = Path(__file__).parents[1]
BATCH: Final = 2_000
SHARES: Final = {
    "documents": 21, "jobs": 8, "jsonl": 12, "manifests": 12, "npy": 8, "npz": 12, "parquet": 10, "safetensors": 11,
    "secagg": 6, "operators": 100,
}  # fmt: skip
"""To each hundred cases of bytes a hundred calls of operators."""


ENVIRONMENT: Final = {
    "PATH": os.defpath,
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
"""As in runner.settings, without the small caches of the heap, which would hand out memory unpoisoned."""


@dataclass(frozen=True)
class Batch:
    """Cases of one kind, from a number on."""

    kind: str
    start: int
    count: int


class Playing:
    """One child at a time: one that ended is replaced by the next batch."""

    def __init__(self, package: str = KINDS, path: str = "") -> None:
        self._package, self._path = package, path
        self._progress: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process: subprocess.Popen[str] | None = None

    def play(self, batch: Batch) -> Outcome:
        """Plays all cases of the batch, even if the child crashes."""
        total, start, end = Outcome(), batch.start, batch.start + batch.count
        while start < end:
            answer = self._send_request({"kind": batch.kind, "start": start, "count": end - start})
            if answer is not None:
                return added(total, answer)
            number = int.from_bytes(os.pread(self._progress.fileno(), 8, 0), "little")
            crash = Outcome(cases=number + 1 - start, failures=[(seed_of(batch.kind, number), self._ending())])
            total, start = added(total, crash), number + 1
        return total

    def close(self) -> None:
        """Ends the child."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        self._progress.close()

    def _send_request(self, request: dict[str, Any]) -> Outcome | None:
        """The child's answer; None where it ended before it gave one."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        os.pwrite(self._progress.fileno(), request["start"].to_bytes(8, "little"), 0)
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        line = process.stdout.readline()
        return Outcome(**json.loads(line)) if line else None

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            progress = self._progress.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fuzz.child", str(progress), self._package],
                cwd=ROOT,
                env=ENVIRONMENT | {"PYTHONPATH": self._path},
                pass_fds=(progress,),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            if self._process.stdout is None or not self._process.stdout.readline():
                raise RuntimeError(f"the child did not start: {self._ending()}")
        return self._process

    def _ending(self) -> str:
        process, self._process = self._process, None
        assert process is not None
        process.communicate()
        code = process.returncode
        return f"the child ended with {signal.Signals(-code).name if code < 0 else code}"


def added(one: Outcome, other: Outcome) -> Outcome:
    """Both together."""
    slower = max((one, other), key=lambda outcome: outcome.slowest_ms)
    return Outcome(
        one.cases + other.cases,
        one.accepted + other.accepted,
        one.refused + other.refused,
        slower.slowest_ms,
        one.seconds + other.seconds,
        slower.slowest,
        [*one.failures, *((seed, fault) for seed, fault in other.failures)],
        [*one.kept, *other.kept],
    )


def batches(cases: int, shares: Mapping[str, int] = SHARES) -> list[Batch]:
    """So many cases, shared out among the kinds, in the order that they are played."""
    whole = sum(shares.values())
    counts = {kind: -(-cases * share // whole) for kind, share in shares.items()}
    return [
        Batch(kind, start, min(BATCH, counts[kind] - start))
        for start in range(0, max(counts.values()), BATCH)
        for kind in counts
        if start < counts[kind]
    ]


@contextmanager
def player(package: str = KINDS, path: str = "") -> Iterator[Playing]:
    playing = Playing(package, path)
    try:
        yield playing
    finally:
        playing.close()


def played(wanted: Iterable[Batch], processes: int) -> Generator[tuple[str, Outcome], None, None]:
    """Yields (kind, outcome) of each batch, over `processes` children; closed early, it begins no further one."""
    own = threading.local()
    made: list[Playing] = []

    def play(batch: Batch) -> tuple[str, Outcome]:
        if not hasattr(own, "playing"):
            own.playing = Playing()
            made.append(own.playing)
        return batch.kind, own.playing.play(batch)

    try:
        with ThreadPoolExecutor(processes) as pool:
            yield from pool.map(play, wanted)
    finally:
        for playing in made:
            playing.close()
