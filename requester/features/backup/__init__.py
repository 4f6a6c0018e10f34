"""Copies everything the embedded service cannot do without, while it serves; and restores it.

gradmarket.commands.features.backup has the commands.

Rows name blobs, and blobs are deleted when no row needs them any more. So nobody may write rows while the blobs are
linked: then all blobs that the copied rows name are among the copied blobs. A link takes microseconds, so the service
waits for milliseconds; the bytes are copied afterwards.

The service's own local chain, if any, is copied last: all that the copied rows record of it has happened there, and
later events are found by comparing the books with it, as after any restart.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from blake3 import blake3

from contracts import local
from gradmarket.market.errors import Refused
from gradmarket.market.features.log.job_log import RESTORED, encode_restart
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf
from gradmarket.market.messages import LogHead
from gradmarket.market.terms import Hash
from gradmarket.market.wire.log_proofs import LeafKind
from requester.feature import Feature

DATABASE: Final = "gradmarket.sqlite"
BLOBS: Final = "blobs"
KEYS: Final = "keys"
DEPLOYMENT: Final = "deployment.json"
CHAIN: Final = "chain"
WAIT_S: Final = 60.0


class BackupRefused(Refused):
    """The backup was refused."""


@dataclass(frozen=True)
class BackupEntry:
    """The contents of a backup."""

    blobs: int
    blob_bytes: int
    keys: int
    database_bytes: int
    chain: bool
    """Whether the service's own local chain is in it."""


def create_backup(data: Path, to: Path) -> BackupEntry:
    """Copies the database, blobs, keys, deployment file and local chain of `data` into the new folder `to`."""
    if not (data / DATABASE).is_file():
        raise BackupRefused(f"no {DATABASE} in {data}")
    _new_folder(to)
    with TemporaryDirectory(prefix="backup-", dir=data) as links:
        with closing(sqlite3.connect(data / DATABASE, timeout=WAIT_S, isolation_level=None)) as reader:
            with closing(sqlite3.connect(data / DATABASE, timeout=WAIT_S, isolation_level=None)) as writer:
                writer.execute("BEGIN IMMEDIATE")  # nobody else writes until it is closed
                _link_blob_files(data / BLOBS, Path(links))
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            with closing(sqlite3.connect(to / DATABASE)) as copy:
                reader.backup(copy)
        shutil.copytree(links, to / BLOBS)  # after the reader, which keeps SQLite's log from being emptied
    _copy_keys(data, to)
    local.copy_state(data / CHAIN, to / CHAIN)
    return check_backup(to)


def restore_backup(kept_in: Path, data: Path, clock: Callable[[], float] = time.time) -> BackupEntry:
    """Copies a backup into the new folder `data`, whose logs admit that; raises BackupRefused if it is incomplete."""
    entry = check_backup(kept_in)
    _new_folder(data)
    shutil.copy2(kept_in / DATABASE, data / DATABASE)
    admit_restore(data / DATABASE, int(clock()))
    shutil.copytree(kept_in / BLOBS, data / BLOBS)
    _copy_keys(kept_in, data)
    local.copy_state(kept_in / CHAIN, data / CHAIN)
    return entry


def describe_missing_chain(kept_in: Path) -> str:
    """Describes the money that a restore of this backup does not bring back; empty if it brings everything."""
    if not (kept_in / DEPLOYMENT).is_file() or local.is_chain_resumable(kept_in / CHAIN):
        return ""
    return (
        f"The backup has no chain. The money of its jobs is on the one that {kept_in / DEPLOYMENT} names: "
        "serve what is restored with --rpc and that chain's node. On any other chain it is lost."
    )


def check_backup(folder: Path) -> BackupEntry:
    """Checks a backup and returns its contents; raises BackupRefused for a broken database or a misnamed blob."""
    database = folder / DATABASE
    if not database.is_file():
        raise BackupRefused(f"no {DATABASE} in {folder}")
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            (result,) = connection.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.DatabaseError as error:
        raise BackupRefused(f"{database}: {error}") from error
    if result != "ok":
        raise BackupRefused(f"{database}: {result}")
    sizes = []
    for path in _list_blob_files(folder / BLOBS):
        if blake3().update_mmap(path).hexdigest() != path.name:
            raise BackupRefused(f"the blob {path.name} holds other bytes")
        sizes.append(path.stat().st_size)
    keys = len(list((folder / KEYS).glob("*")))
    chain = local.is_chain_resumable(folder / CHAIN)
    return BackupEntry(len(sizes), sum(sizes), keys, database.stat().st_size, chain)


def _new_folder(path: Path) -> None:
    if path.exists() and any(path.iterdir()):
        raise BackupRefused(f"{path} is not empty: name a new folder")
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)


def _list_blob_files(root: Path) -> Iterator[Path]:
    """Yields complete blobs; `incoming`, with unfinished uploads, is left out."""
    return (path for path in root.glob("[0-9a-f][0-9a-f]/*") if path.is_file())


def _link_blob_files(root: Path, to: Path) -> None:
    for path in _list_blob_files(root):
        place = to / path.parent.name
        place.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):  # dropped meanwhile: no row needs it any more
            os.link(path, place / path.name)


def _copy_keys(data: Path, to: Path) -> None:
    if (data / KEYS).is_dir():
        shutil.copytree(data / KEYS, to / KEYS, copy_function=_copy_private_file)
    if (data / DEPLOYMENT).is_file():
        shutil.copy2(data / DEPLOYMENT, to / DEPLOYMENT)


def _copy_private_file(source: str, target: str) -> None:
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(Path(source).read_bytes())


# A restored service admits in each job's log where its copy ends: records after that are lost, and were no lie.

LEAVES: Final = """
    SELECT jobs.id, jobs.chain_job, log_leaves.hash FROM jobs LEFT JOIN log_leaves ON jobs.id = log_leaves.job_id
    WHERE jobs.chain_job IS NOT NULL ORDER BY jobs.id, log_leaves.number
"""


def admit_restore(database: Path, at: int) -> int:
    """Adds a leaf to the log of each job of the chain, `at` in Unix seconds; returns their number.

    A database without logs, of an earlier release, is left as it is.
    """
    with closing(sqlite3.connect(database)) as connection, connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'log_leaves'").fetchone():
            return 0
        logs = [(key, list(rows)) for key, rows in groupby(connection.execute(LEAVES).fetchall(), itemgetter(0, 1))]
        for (job, chain_job), rows in logs:
            tree = GrowingTree(leaf for _, _, leaf in rows if leaf is not None)
            kept = LogHead(chain_job, len(tree), Hash(tree.compute_root()))
            leaf = hash_leaf(encode_restart(RESTORED, kept, at))
            row = (job, len(tree), LeafKind.RESTART.value, f"{RESTORED}/{at}", leaf)
            connection.execute("INSERT INTO log_leaves (job_id, number, kind, about, hash) VALUES (?, ?, ?, ?, ?)", row)
    return len(logs)


class BackupFeature(Feature):
    name = "backup"
    needs = ("log",)
