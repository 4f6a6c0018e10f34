"""Writes an archive: all data that a job's audit needs, as content-addressed files that any static server can serve."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gradmarket.archives.archive_index import BLOBS, INDEX, ArchivedEnd, ArchiveIndex
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.manifest import parse_manifest
from gradmarket.market.sampling import list_training_partitions
from gradmarket.market.terms import Digest, JobId, blob_digest
from gradmarket.market.views.job_views import ListedJob
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.public_audit.job_proof import EarlierJob, JobRecord
from graphdoc.encoding import Bytes
from worker import durable


def write_archive(
    record: JobRecord, market: str, chain: ChainFacts, job: ListedJob, fetcher: Fetcher, to: Path
) -> Digest:
    """Writes the archive of a job into the folder `to`; returns the digest of its index.

    Existing files are not fetched again. Raises DownloadRefused, DownloadFailed.
    """
    blobs = list(_list_blobs(record, fetcher))
    for digest in blobs:
        _store_blob(to, digest, partial(fetcher.blob, digest))
    evidence = dict[str, Digest]()
    for task, shown in record.evidence.items():
        data = shown.model_dump_json().encode()
        evidence[task] = blob_digest(data)
        _store_blob(to, evidence[task], partial(bytes, data))
    index = ArchiveIndex(
        market=market,
        chain=chain,
        job=job,
        rounds=tuple(record.rounds),
        tasks=tuple(record.tasks),
        payments=tuple(record.payments),
        log=record.log.head,
        leaves=tuple(record.log.leaves),
        earlier=_archive_end(record.earlier),
        evidence=evidence,
        blobs=tuple(blobs),
    )
    data = index.model_dump_json().encode()
    durable.write_file_atomically(to / INDEX, data)
    return blob_digest(data)


def _list_blobs(record: JobRecord, fetcher: Fetcher) -> Iterator[Digest]:
    publication, closed = record.publication, record.closed
    yield publication.document
    yield publication.manifest
    yield publication.parameters
    if (start := publication.spec.continue_from) is not None and start.optimizer_state is not None:
        yield start.optimizer_state
    yield from (digest for digest in [closed[-1].updated if closed else None] if digest is not None)
    manifest = parse_manifest(fetcher.fetch_described(publication.manifest))
    for partition in list_training_partitions(manifest, publication.spec):
        fetcher.get(partition.link, partition.digest, partition.bytes)
        yield partition.digest


def _archive_end(earlier: EarlierJob | str) -> ArchivedEnd | None:
    if isinstance(earlier, str):
        return None
    job = ListedJob(
        id=JobId(earlier.publication.job),
        state=earlier.state,
        publication=earlier.publication,
        chain_job=earlier.opened.job,
    )
    log = earlier.log
    return ArchivedEnd(job=job, rounds=tuple(earlier.rounds), log=log.head, leaves=tuple(log.leaves))


def _store_blob(to: Path, digest: Digest, load: Callable[[], Bytes]) -> None:
    path = to / BLOBS / digest
    if not path.is_file() or blob_digest(path.read_bytes()) != digest:
        durable.write_file_atomically(path, load(), synced=False)
