"""PostgreSQL really stopped, and a disk really full: one line when the part goes, one when it is back, nothing lost."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pgserver
import pytest

from contracts.local import LocalChain
from tests.databases import Postgres, in_memory
from tests.lanes import FULL
from tests.ops.served import Served, served
from tests.ops.test_ready_and_ended import JOB, comes_to
from tests.patience import wait_until

pytestmark = FULL
ASKED = 100
"""Requests while a part is away, each of which needs it; stages and sweeps go on beside them."""
MOST_LOG = 8_000
"""Bytes of an outage's lines that are no request's; a minute of one was 6.6 MB."""


def troubles(service: Served, part: str) -> tuple[int, int]:
    """Returns the numbers of the log's lines on the part's failure and on its return."""
    return len([line for line in service.lines() if line.get("part") == part]), len(
        service.list_events("it is back", of=part)
    )


def loud(service: Served, before: int) -> list[dict[str, Any]]:
    """Returns the log since the line `before`, without the lines that come at any time."""
    return [line for line in service.lines()[before:] if line["level"] not in ("debug", "info")]


def send_requests(service: Served, job: str) -> None:
    """Sends requests that read rows and blobs; each is answered, with a sentence where it cannot be."""
    with service.http(service.token) as client:
        for number in range(ASKED):
            for answer in (client.get(f"/v1/jobs/{job}"), client.post("/v1/jobs", json=JOB | {"name": f"n{number}"})):
                assert answer.status_code in (200, 201, 503), answer.text
                assert "Traceback" not in answer.text


def check_quiet(service: Served, before: int, parts: set[str]) -> None:
    assert "Traceback" not in service.log.read_text()
    told = loud(service, before)
    odd = [line for line in told if line.get("part", line.get("of")) not in parts]
    assert not odd, odd
    assert {line.get("part") or line.get("of") for line in told} == parts
    assert len(told) == 2 * len(parts), told
    assert sum(len(str(line)) for line in told) < MOST_LOG


@contextmanager
def stopped(server: Any) -> Iterator[None]:
    """Inside, the server is stopped; afterwards it is started again on the same files."""
    pgserver.pg_ctl(["-w", "-m", "fast", "stop"], pgdata=server.pgdata, user=server.system_user)
    try:
        yield
    finally:
        server.ensure_postgres_running()


def test_a_database_that_is_stopped_is_one_line_and_one_when_it_is_back(own_anvil: LocalChain, tmp_path: Path) -> None:
    with TemporaryDirectory(dir=in_memory()) as folder:
        server = pgserver.get_server(folder)
        try:
            url = Postgres(server).new()
            with served(tmp_path / "data", own_anvil.url, {"GRADMARKET_DATABASE": url}) as service:
                job = service.http(service.token).post("/v1/jobs", json=JOB).json()["id"]
                before = len(service.lines())
                with stopped(server):
                    comes_to(service, "database")
                    send_requests(service, job)
                comes_to(service)
                wait_until(lambda: troubles(service, "database") == (1, 1), lambda: loud(service, before))
                check_quiet(service, before, {"database"})
                assert service.http().get(f"/v1/jobs/{job}").json()["name"] == JOB["name"]
                with stopped(server):
                    comes_to(service, "database")
                comes_to(service)
                wait_until(lambda: troubles(service, "database") == (2, 2), lambda: loud(service, before))
        finally:
            server.cleanup()


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A disk of a few megabytes of its own."""
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("a disk of its own takes root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(path: Path) -> None:
    """Takes all free space, to the last byte, and again the space freed meanwhile."""
    with path.open("ab", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            while True:
                try:
                    file.write(os.urandom(size))
                except OSError:
                    break


def test_a_full_disk_is_one_line_a_part_and_one_when_there_is_room(own_anvil: LocalChain, tmp_path: Path) -> None:
    with small_disk(tmp_path / "data"), served(tmp_path / "data", own_anvil.url) as service:
        job = service.http(service.token).post("/v1/jobs", json=JOB).json()["id"]
        before = len(service.lines())
        filler = service.data / "filler"
        fill(filler)
        wait_until(lambda: fill(filler) or service.ready().status_code == 503, service.ready)
        send_requests(service, job)
        filler.unlink()
        comes_to(service)
        gone = {str(line["part"]) for line in loud(service, before) if "part" in line}
        assert gone
        wait_until(lambda: all(troubles(service, part) == (1, 1) for part in gone), lambda: loud(service, before))
        check_quiet(service, before, gone)
        assert service.http(service.token).post("/v1/jobs", json=JOB).status_code == 201
        assert service.http().get(f"/v1/jobs/{job}").json()["name"] == JOB["name"]
