"""The commands of docs/operations.md as they stand: a copy while a job runs, the loss of everything, the way back."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contracts import deployment
from contracts.ledger import Ledger
from contracts.local import LocalChain
from gradmarket.market.features.log import job_log
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf
from gradmarket.market.messages import LogHead
from gradmarket.market.terms import Hash
from gradmarket.market.wire.log_proofs import PublishedRestart
from gradmarket.network.chain_errors import LocalChainFailed
from requester.features.backup import (
    BackupRefused,
    check_backup,
    create_backup,
    describe_missing_chain,
    restore_backup,
)
from tests.lanes import FULL
from tests.ops.served import Served, served
from tests.patience import wait_until

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"
JOB: dict[str, Any] = {
    "name": "kept",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "step": {"rows": 16},
    "optimizer": {"lr": 0.1},
    "rounds": 80,
    "price": "1000000000",
    "budget": "400000000000",
    "deadlines": {"lease_s": 6, "wave_s": 5, "upload_s": 5},
    "replication": {"replicas": 1, "max_replicas": 1},
}
SLOWLY, SOON = {"GRADMARKET_SETTLE_EVERY_S": "3600"}, {"GRADMARKET_SETTLE_EVERY_S": "0.5"}


def written(name: str) -> str:
    """The commands under this name in the page."""
    (commands,) = re.findall(rf"```sh {name}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(commands)


def run(name: str, place: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GRADMARKET_")}
    command = ["bash", "-euo", "pipefail", "-c", written(name)]
    return subprocess.run(
        command, cwd=place, env=clean | {"PATH": path}, check=True, capture_output=True, text=True
    ).stdout


@contextmanager
def worker(service: Served, place: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "gradmarket", "worker", "run", "--market", service.url, "--data", str(place)]
    command += ["--rpc", service.rpc] if service.rpc else []
    with place.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def rounds(service: Served, job: str) -> int:
    return len(service.http().get(f"/v1/jobs/{job}/rounds?limit=500").json()["items"])


@FULL
def test_a_service_that_lost_everything_goes_on_from_its_copy(own_anvil: LocalChain, tmp_path: Path) -> None:
    with served(tmp_path / "data", own_anvil.url, SLOWLY) as service, worker(service, tmp_path / "first"):
        job = service.http(service.token).post("/v1/jobs", json=JOB).json()["id"]
        wait_until(lambda: rounds(service, job) > 2)
        assert "kept in backup" in run("backup", tmp_path)
        copied = earned(tmp_path / "backup")
        wait_until(lambda: fetch_job(service, job)["costs"]["earned"] != str(copied))
        service.process.send_signal(signal.SIGKILL)
        service.process.wait()
    shutil.rmtree(tmp_path / "data")

    assert "gradmarket serve --data restored" in run("restore", tmp_path)
    assert written("serve").strip() == "gradmarket serve --data restored"
    with served(tmp_path / "restored", own_anvil.url, SOON) as service:
        assert int(fetch_job(service, job)["costs"]["earned"]) == copied
        wait_until(lambda: "has 0" in fetch_job(service, job)["reason"], lambda: fetch_job(service, job))
        with worker(service, tmp_path / "second"):
            wait_until(lambda: fetch_job(service, job)["state"] == "finished")
            ledger = Ledger(own_anvil.connect(), deployment.load_deployment(tmp_path / "restored" / "deployment.json"))
            wait_until(lambda: not differences(service, ledger, job))
        assert rounds(service, job) == JOB["rounds"]


def fetch_job(service: Served, job: str) -> dict[str, Any]:
    found: dict[str, Any] = service.http().get(f"/v1/jobs/{job}").json()
    return found


def earned(folder: Path) -> int:
    with sqlite3.connect(folder / "gradmarket.sqlite") as database:
        (units,) = database.execute("SELECT coalesce(sum(units), 0) FROM earned").fetchone()
        (unit,) = database.execute("SELECT unit FROM jobs").fetchone()
    return int(units) * int(unit)


def differences(service: Served, ledger: Ledger, job: str) -> list[object]:
    """Returns differences between the books and the chain, and unsettled earnings."""
    chain_job, unit = fetch_job(service, job)["chain_job"], int(fetch_job(service, job)["unit"])
    found: list[object] = []
    for line in service.http().get(f"/v1/jobs/{job}/workers").json()["items"]:
        account = ledger.account(chain_job, line["address"])
        if not (int(line["earned"]) == int(line["settled"]) == account.settled * unit):
            found.append((line, account))
    costs, onchain = fetch_job(service, job)["costs"], ledger.job(chain_job)
    if int(costs["deposited"]) - int(costs["refunded"]) != onchain.deposited * unit:
        found.append((costs, onchain))
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder as a service leaves it, with one blob."""
    folder = tmp_path / "data"
    (folder / "keys").mkdir(parents=True)
    (folder / "keys" / "signer").write_text("11" * 32)
    (folder / "deployment.json").write_text("{}")
    name = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"  # of no bytes
    (folder / "blobs" / name[:2]).mkdir(parents=True)
    (folder / "blobs" / name[:2] / name).write_bytes(b"")
    (folder / "blobs" / "incoming").mkdir()
    (folder / "blobs" / "incoming" / "half").write_bytes(b"half of something")
    with sqlite3.connect(folder / "gradmarket.sqlite") as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE rows (number INTEGER)")
        database.execute("INSERT INTO rows VALUES (1)")
    database.close()
    return folder


def test_the_copy_is_complete_and_its_keys_are_private(data: Path, tmp_path: Path) -> None:
    made = create_backup(data, tmp_path / "copy")
    assert (made.blobs, made.keys) == (1, 1)
    assert restore_backup(tmp_path / "copy", tmp_path / "back") == made
    assert (tmp_path / "back" / "keys" / "signer").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "back" / "blobs" / "incoming").exists()
    assert not [path for path in data.iterdir() if path.name.startswith("backup-")], "nothing is left behind"


def test_each_log_of_a_restored_service_has_the_end_of_its_copy(data: Path, tmp_path: Path) -> None:
    """A worker with a head of two leaves more sees a restore; without the leaf it would see a fork. One with a receipt
    from before a job's first leaf sees it, too."""
    leaves = [Hash(hash_leaf(bytes([number]))) for number in range(5)]
    with sqlite3.connect(data / "gradmarket.sqlite") as database:
        database.execute("CREATE TABLE jobs (id TEXT, chain_job INTEGER)")
        database.execute("INSERT INTO jobs VALUES ('a', 9), ('b', 10), ('draft', NULL)")
        database.execute("CREATE TABLE log_leaves (job_id TEXT, number INTEGER, kind TEXT, about TEXT, hash BLOB)")
        rows = [("a", number, "offer", str(number), leaf) for number, leaf in enumerate(leaves[:3])]
        database.executemany("INSERT INTO log_leaves VALUES (?, ?, ?, ?, ?)", rows)
    create_backup(data, tmp_path / "copy")
    restore_backup(tmp_path / "copy", tmp_path / "back", lambda: 1_000.5)
    with sqlite3.connect(tmp_path / "back" / "gradmarket.sqlite") as database:
        told = database.execute("SELECT job_id, kind, about, hash FROM log_leaves ORDER BY job_id, number").fetchall()
    *told, first = told
    assert [(job, kind) for job, kind, *_ in told] == [("a", "offer")] * 3 + [("a", "restart")]
    assert first[:2] == ("b", "restart")
    begun = PublishedRestart(number=0, batch=job_log.RESTORED, at=1_000)
    assert list(job_log.list_restores(10, [Hash(first[3])], [begun])) == [begun]
    batch, at = map(int, told[-1][2].split("/"))
    shown, restart = [Hash(leaf) for *_, leaf in told], PublishedRestart(number=3, batch=batch, at=at)
    lost = LogHead(9, 5, Hash(GrowingTree(leaves).compute_root()))
    assert list(job_log.list_restores(9, shown, [restart])) == [restart]
    assert job_log.find_admission(shown, [restart], lost, 999.0, {}) == restart
    assert job_log.find_admission(shown, [restart], lost, 2_000.0, {}) is None, "told after the restore"
    other = [*leaves[:2], Hash(hash_leaf(b"other")), shown[3]]
    assert job_log.find_admission(other, [restart], lost, 999.0, {}) is None, "it names another log"


def test_a_writer_waits_and_its_row_is_not_in_the_copy(data: Path, tmp_path: Path) -> None:
    """A row that is being written is in the copy whole or not at all."""
    with sqlite3.connect(data / "gradmarket.sqlite") as writer:
        writer.execute("INSERT INTO rows VALUES (2)")
        writer.commit()
        create_backup(data, tmp_path / "copy")
        writer.execute("INSERT INTO rows VALUES (3)")
    with sqlite3.connect(tmp_path / "copy" / "gradmarket.sqlite") as copy:
        assert copy.execute("SELECT number FROM rows").fetchall() == [(1,), (2,)]


def test_while_blobs_are_copied_the_log_of_the_database_can_be_emptied(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blobs may take hours: a reader that stayed open would have the log grow as long."""
    busy, copytree = list[int](), shutil.copytree

    def copy_beside_a_writer(*folders: Any, **options: Any) -> Any:
        with sqlite3.connect(data / "gradmarket.sqlite", isolation_level=None) as writer:
            writer.execute("INSERT INTO rows VALUES (2)")
            busy.append(writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        return copytree(*folders, **options)

    monkeypatch.setattr(shutil, "copytree", copy_beside_a_writer)
    create_backup(data, tmp_path / "copy")
    assert busy
    assert not any(busy)


def test_nothing_is_written_over(data: Path, tmp_path: Path) -> None:
    create_backup(data, tmp_path / "copy")
    with pytest.raises(BackupRefused, match="not empty"):
        create_backup(data, tmp_path / "copy")
    with pytest.raises(BackupRefused, match="not empty"):
        restore_backup(tmp_path / "copy", data)


def test_a_folder_without_a_service_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupRefused, match=r"no gradmarket\.sqlite"):
        create_backup(tmp_path, tmp_path / "copy")
    with pytest.raises(BackupRefused, match=r"no gradmarket\.sqlite"):
        restore_backup(tmp_path, tmp_path / "back")


def test_a_damaged_copy_is_refused_before_anything_is_brought_back(data: Path, tmp_path: Path) -> None:
    create_backup(data, tmp_path / "copy")
    (blob,) = (tmp_path / "copy" / "blobs").glob("*/*")
    blob.write_bytes(b"other")
    with pytest.raises(BackupRefused, match="holds other bytes"):
        restore_backup(tmp_path / "copy", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    blob.write_bytes(b"")
    database = tmp_path / "copy" / "gradmarket.sqlite"
    database.write_bytes(b"\xff" * database.stat().st_size)
    with pytest.raises(BackupRefused, match="not a database"):
        check_backup(tmp_path / "copy")


@FULL
def test_a_local_chain_comes_back_with_the_rest(tmp_path: Path) -> None:
    """backup, restore and serve on the default chain: the money of a running job is there, and its deposit counts."""
    children = []
    try:
        with served(tmp_path / "data", None, SLOWLY) as service:
            children.append(tmp_path / "data" / "chain")
            job = service.http(service.token).post("/v1/jobs", json=JOB).json()["id"]
            wait_until(lambda: fetch_job(service, job)["state"] == "running")
            deposited = fetch_job(service, job)["costs"]["deposited"]
            assert "the local chain too" in run("backup", tmp_path)
        stop(children.pop())
        shutil.rmtree(tmp_path / "data")
        run("restore", tmp_path)
        with served(tmp_path / "restored", None, SOON) as service, worker(service, tmp_path / "worker"):
            children.append(tmp_path / "restored" / "chain")
            wait_until(lambda: rounds(service, job) > 0)
            assert fetch_job(service, job)["costs"]["deposited"] == deposited
    finally:
        for chain in children:
            stop(chain)


def stop(chain: Path) -> None:
    running = LocalChain.find_running_chain(chain)
    if running is not None:
        running.stop()


def test_a_chain_missing_in_a_backup_is_named_before_the_restore(data: Path, tmp_path: Path) -> None:
    create_backup(data, tmp_path / "copy")
    assert "--rpc" in describe_missing_chain(tmp_path / "copy")
    (tmp_path / "copy" / "chain").mkdir()
    (tmp_path / "copy" / "chain" / "anvil-state.json").write_text("{}")
    assert describe_missing_chain(tmp_path / "copy") == ""


def test_a_chain_that_was_left_half_written_is_not_brought_back(data: Path, tmp_path: Path) -> None:
    (data / "chain").mkdir()
    (data / "chain" / "anvil-state.json").write_text("{")
    with pytest.raises(LocalChainFailed, match="half written"):
        create_backup(data, tmp_path / "copy")
