"""The contents of a job's archive, and how to read it; gradmarket.public_audit.archive writes it.

    archive.json               the lists, and by digest everything else
    v1/blobs/blake3:…          evidence, document, manifest, first and newest parameters, partitions

The paths are the service's own, so a mirror is downloaded from as a market is. A reader of an archive trusts neither
its maker nor its mirror: blobs are checked by their digests, all else by the proof.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from pydantic import ConfigDict, ValidationError

from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.fields import DigestField, HashField, OneFaultModel, first_fault
from gradmarket.market.terms import Digest, Hash, JobId, blob_digest
from gradmarket.market.views.job_views import ListedJob
from gradmarket.market.wire.evidence import PublishedEvidence, PublishedPayment, PublishedRound, PublishedTask
from gradmarket.market.wire.log_proofs import PublishedHead
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network import MAX_ANSWER, MOST_VALUES
from graphdoc.encoding import Bytes

INDEX: Final = "archive.json"
BLOBS: Final = "v1/blobs"
MOST: Final = 2**29
"""Bytes of an index."""
MOST_OBJECTS: Final = 2**20
"""Objects of an index: each takes kilobytes while it is parsed, and the shortest three bytes on the wire."""
MOST_COMMAS: Final = 2**24
"""Values of an index, about."""


class PublicRecords(Protocol):
    """A source of a job's public records: its market (`worker.protocol.client.MarketClient`), or an archive."""

    def facts(self) -> ChainFacts: ...
    def job(self, job: JobId) -> ListedJob: ...
    def rounds(self, job: JobId) -> Iterable[PublishedRound]: ...
    def tasks(self, job: JobId) -> Iterable[PublishedTask]: ...
    def fetch_payments(self, job: JobId) -> Iterable[PublishedPayment]: ...
    def task(self, job: JobId, task: str) -> PublishedEvidence: ...
    def log(self, job: JobId) -> PublishedHead | None: ...
    def leaves(self, job: JobId, size: int) -> Iterable[Hash]: ...


class ArchivedEnd(OneFaultModel):
    """The end of a job that the archive's one continues, as its market listed it."""

    model_config = ConfigDict(frozen=True)

    job: ListedJob
    rounds: tuple[PublishedRound, ...]
    log: PublishedHead | None = None
    leaves: tuple[HashField, ...] = ()


class ArchiveIndex(OneFaultModel):
    """The file `archive.json`; `evidence` by the task's id, `blobs` are the others that an audit reads."""

    model_config = ConfigDict(frozen=True)

    format: Literal["gradmarket-archive/1"] = "gradmarket-archive/1"
    market: str
    chain: ChainFacts
    job: ListedJob
    rounds: tuple[PublishedRound, ...]
    tasks: tuple[PublishedTask, ...]
    payments: tuple[PublishedPayment, ...]
    log: PublishedHead | None = None
    leaves: tuple[HashField, ...] = ()
    earlier: ArchivedEnd | None = None
    evidence: dict[str, DigestField]
    blobs: tuple[DigestField, ...]


@dataclass(frozen=True)
class ArchiveRecords:
    """An archive that is read; `read_blob` returns a blob whose digest is checked."""

    index: ArchiveIndex
    read_blob: Callable[[Digest], Bytes]

    def facts(self) -> ChainFacts:
        return self.index.chain

    def job(self, job: JobId) -> ListedJob:
        return self._find(job).job

    def rounds(self, job: JobId) -> Iterable[PublishedRound]:
        return self._find(job).rounds

    def tasks(self, _job: JobId) -> Iterable[PublishedTask]:
        return self.index.tasks

    def fetch_payments(self, _job: JobId) -> Iterable[PublishedPayment]:
        return self.index.payments

    def log(self, job: JobId) -> PublishedHead | None:
        return self._find(job).log

    def leaves(self, job: JobId, _size: int) -> Iterable[Hash]:
        return self._find(job).leaves

    def task(self, _job: JobId, task: str) -> PublishedEvidence:
        if task not in self.index.evidence:
            raise NotFound(f"the archive has no evidence of task {task[:80]}")
        digest = self.index.evidence[task]
        data = self.read_blob(digest)
        if len(data) > MAX_ANSWER or (shown := bytes(data)).count(b",") > MOST_VALUES:
            raise Refused(f"the archive's {digest} is too long for the evidence of a task", "name another archive")
        try:
            return PublishedEvidence.model_validate_json(shown)
        except ValidationError as error:
            raise Refused(
                f"the archive's {digest} is no evidence of task {task[:80]}", "name another archive"
            ) from error

    def _find(self, job: JobId) -> "ArchiveIndex | ArchivedEnd":
        earlier = self.index.earlier
        if earlier is not None and earlier.job.id == job:
            return earlier
        if job != self.index.job.id:
            raise NotFound(f"the archive is of job {self.index.job.id}, not of {job}")
        return self.index


def parse_archive(data: bytes) -> ArchiveIndex:
    """Returns the parsed index. Raises Refused if it is no archive of a readable version, or has too many values."""
    if data.count(b"{") > MOST_OBJECTS or data.count(b",") > MOST_COMMAS:
        why = f"archive: it has more than {MOST_OBJECTS} objects, or {MOST_COMMAS} values"
        raise Refused(why, "name the archive.json that `gradmarket archive` wrote")
    try:
        return ArchiveIndex.model_validate_json(data)
    except ValidationError as error:
        place, why = first_fault(error, "archive")
        raise Refused(f"{place}: {why}", "name the archive.json that `gradmarket archive` wrote") from error


def read_local_blob(folder: Path, digest: Digest) -> bytes:
    """Returns a blob of an archive in a folder. Raises NotFound, or Refused if its digest is another."""
    path = folder / BLOBS / digest
    if not path.is_file():
        raise NotFound(f"the archive lacks {digest}", "copy all of its folder v1/blobs")
    data = path.read_bytes()
    if blob_digest(data) != digest:
        raise Refused(f"the archive has other bytes than those of {digest}", "copy it again")
    return data
