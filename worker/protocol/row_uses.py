"""The files in which this worker keeps how often each job has used its rows: one a job, written before they are used.

A file that was lost, or a folder of another worker, counts from nothing. One that cannot be read stops the job here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blake3 import blake3
from pydantic import TypeAdapter, ValidationError

from gradmarket.compute.row_uses import RowUses
from gradmarket.market.errors import Refused
from worker import durable

_USES: Final = TypeAdapter(RowUses)


@dataclass(frozen=True)
class RowUsesFolder:
    """Files are named by a hash: the market chooses a job's name."""

    folder: Path

    def load(self, job: str) -> RowUses | None:
        """Returns what was kept. Raises Refused where the file cannot be read."""
        path = self._build_file_path(job)
        return _read_uses(path, f"the rows of {job}") if path.exists() else None

    def load_all(self) -> Sequence[RowUses]:
        """Returns those of every job. Raises Refused where a file cannot be read."""
        return [_read_uses(path, "rows") for path in sorted(self.folder.glob("*.json"))]

    def keep(self, job: str, uses: RowUses) -> None:
        durable.write_file_atomically(self._build_file_path(job), _USES.dump_json(uses))

    def _build_file_path(self, job: str) -> Path:
        return self.folder / f"{blake3(job.encode()).hexdigest()[:32]}.json"


def _read_uses(path: Path, what: str) -> RowUses:
    try:
        return _USES.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = f"{path} cannot be read, and it says how often {what} were used"
        raise Refused(why, "bring it back from a copy: without it the job takes none of these rows") from error
