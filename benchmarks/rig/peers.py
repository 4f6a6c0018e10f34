"""Other software that is measured beside a round, where `make bench-peers` has installed it."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import benchmarks.peers

ENVIRONMENTS = Path(".peers")
LATEST_S = 600


@dataclass(frozen=True)
class Peer:
    """`file`: of benchmarks/peers; `environment`: a virtual environment of its own; `most`: rounds, for it is slow."""

    name: str
    file: str
    environment: str
    most: int = 100

    @property
    def _python(self) -> Path:
        return ENVIRONMENTS / self.environment / "bin" / "python"

    @property
    def installed(self) -> bool:
        return self._python.exists()

    def seconds(self, elements: int, count: int) -> list[float]:
        """Returns the seconds of each of `count` rounds of two workers, in order of size. Raises RuntimeError."""
        return self.read_seconds(elements, min(count, self.most))

    def read_seconds(self, *arguments: int) -> list[float]:
        """Returns the seconds that the file prints when it is run with these arguments, in order of size."""
        file = Path(benchmarks.peers.__path__[0]) / self.file
        command = [str(self._python), str(file), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LATEST_S, check=False)
        if done.returncode or not done.stdout.strip():
            raise RuntimeError(f"{self.name} failed: {done.stderr[-500:]}")
        return sorted(json.loads(done.stdout.strip().splitlines()[-1]))


PEERS = (
    Peer("flower", "flower_legacy.py", "flower"),
    Peer("flower_deployed", "flower_deployed.py", "flower", most=5),
    Peer("hivemind", "hivemind_average.py", "hivemind"),
)
SECURE_SUM = Peer("Flower's SecAgg+", "flower_secagg.py", "flower")


def installed() -> Iterator[Peer]:
    return (peer for peer in PEERS if peer.installed)
