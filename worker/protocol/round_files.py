"""The files in which this worker keeps what a job's next round starts from: one a round, the two newest of a job."""

from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from graphdoc.encoding import Bytes
from worker import durable


@dataclass(frozen=True)
class RoundFiles:
    """Files are named by a hash: the market chooses a job's name."""

    folder: Path

    def load(self, job: str, number: int) -> Bytes | None:
        """Returns what was kept of a round; None where nothing was."""
        try:
            return self._build_file_path(job, number).read_bytes()
        except FileNotFoundError:
            return None

    def keep(self, job: str, number: int, data: bytes) -> None:
        """Keeps it, and forgets all but the round before."""
        durable.write_file_atomically(self._build_file_path(job, number), data)
        before = {self._build_file_path(job, number), self._build_file_path(job, number - 1)}
        for path in self.folder.glob(f"{_hash_job_name(job)}-*"):
            if path not in before:
                path.unlink(missing_ok=True)

    def _build_file_path(self, job: str, number: int) -> Path:
        return self.folder / f"{_hash_job_name(job)}-{number}"


def _hash_job_name(job: str) -> str:
    return blake3(job.encode()).hexdigest()[:32]
