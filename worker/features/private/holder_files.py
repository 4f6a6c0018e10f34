"""The files of a holder, written before its rows are used: the uses of its rows by each job, and its newest rounds.

A lost file of uses, or a folder of another worker, counts from nothing. An unreadable one stops the job here. Files are
named by a hash: the market chooses a job's name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blake3 import blake3
from pydantic import TypeAdapter, ValidationError

from gradmarket.market.errors import Refused
from graphdoc.encoding import Bytes
from worker import durable
from worker.features.private.row_uses import RowUses

_USES: Final = TypeAdapter(RowUses)


@dataclass(frozen=True)
class RoundFiles:
    """The start of a job's next round: one file a round, the two newest of a job."""

    folder: Path

    def load(self, job: str, number: int) -> Bytes | None:
        """Returns the bytes kept of a round; None where none were."""
        try:
            return self._build_file_path(job, number).read_bytes()
        except FileNotFoundError:
            return None

    def store_round(self, job: str, number: int, data: bytes) -> None:
        """Stores the bytes, and forgets all but the round before."""
        durable.write_file_atomically(self._build_file_path(job, number), data)
        before = {self._build_file_path(job, number), self._build_file_path(job, number - 1)}
        for path in self.folder.glob(f"{_hash_job_name(job)}-*"):
            if path not in before:
                path.unlink(missing_ok=True)

    def _build_file_path(self, job: str, number: int) -> Path:
        return self.folder / f"{_hash_job_name(job)}-{number}"


@dataclass(frozen=True)
class RowUsesFolder:
    """One file a job."""

    folder: Path

    def load(self, job: str) -> RowUses | None:
        """Returns the stored uses. Raises Refused where the file cannot be read."""
        path = self._build_file_path(job)
        return _read_uses(path, f"the rows of {job}") if path.exists() else None

    def load_all(self) -> Sequence[RowUses]:
        """Returns the uses of every job. Raises Refused where a file cannot be read."""
        return [_read_uses(path, "rows") for path in sorted(self.folder.glob("*.json"))]

    def store_uses(self, job: str, uses: RowUses) -> None:
        durable.write_file_atomically(self._build_file_path(job), _USES.dump_json(uses))

    def _build_file_path(self, job: str) -> Path:
        return self.folder / f"{_hash_job_name(job)}.json"


def _read_uses(path: Path, subject: str) -> RowUses:
    try:
        return _USES.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = f"{path} cannot be read, and it says how often {subject} were used"
        raise Refused(why, "bring it back from a copy: without it the job takes none of these rows") from error


def _hash_job_name(job: str) -> str:
    return blake3(job.encode()).hexdigest()[:32]
