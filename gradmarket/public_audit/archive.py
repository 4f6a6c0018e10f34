"""Writes an archive: all data that a job's audit needs, as content-addressed files that any static server can serve."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradmarket.archives.archive_index import BLOBS, INDEX, ArchivedEnd, ArchiveIndex
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.manifest import parse_manifest
from gradmarket.market.sampling import list_training_partitions
from gradmarket.market.terms import Digest, JobId, blob_digest
from gradmarket.market.views.job_views import ListedJob
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.public_audit.job_proof import JobRecord
from graphdoc.encoding import Bytes
from worker import durable


def write_archive(
    record: JobRecord, market: str, chain: ChainFacts, job: ListedJob, fetcher: Fetcher, to: Path
) -> Digest:
    """Writes the archive of a job into the folder `to`; returns the digest of its index.

    Existing files are not fetched again. Raises DownloadRefused, DownloadFailed.
    """
    publication, earlier = record.publication, record.earlier
    blobs = [publication.document, publication.manifest, publication.parameters]
    start, ends = publication.spec.continue_from, [one.updated for one in record.closed[-1:]]
    blobs += [one for one in (start.optimizer_state if start is not None else None, *ends) if one is not None]
    manifest = parse_manifest(fetcher.fetch_described(publication.manifest))
    for partition in list_training_partitions(manifest, publication.spec):
        fetcher.get(partition.link, partition.digest, partition.bytes)
        blobs.append(partition.digest)
    for digest in blobs:
        _store_blob(to, digest, partial(fetcher.blob, digest))
    evidence = dict[str, Digest]()
    for task, shown in record.evidence.items():
        data = shown.model_dump_json().encode()
        evidence[task] = blob_digest(data)
        _store_blob(to, evidence[task], partial(bytes, data))
    end: ArchivedEnd | None = None
    if not isinstance(earlier, str):
        continued = ListedJob(
            id=JobId(earlier.publication.job),
            state=earlier.state,
            publication=earlier.publication,
            chain_job=earlier.opened.job,
        )
        log = earlier.log
        end = ArchivedEnd(job=continued, rounds=tuple(earlier.rounds), log=log.head, leaves=tuple(log.leaves))
    index = ArchiveIndex(
        market=market,
        chain=chain,
        job=job,
        rounds=tuple(record.rounds),
        tasks=tuple(record.tasks),
        payments=tuple(record.payments),
        log=record.log.head,
        leaves=tuple(record.log.leaves),
        earlier=end,
        evidence=evidence,
        blobs=tuple(blobs),
    )
    data = index.model_dump_json().encode()
    durable.write_file_atomically(to / INDEX, data)
    return blob_digest(data)


def _store_blob(to: Path, digest: Digest, load: Callable[[], Bytes]) -> None:
    path = to / BLOBS / digest
    if not path.is_file() or blob_digest(path.read_bytes()) != digest:
        durable.write_file_atomically(path, load(), synced=False)
