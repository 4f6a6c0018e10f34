"""Only the owner reads the files of a service or a worker, in folders that were open before, too."""

import stat
from pathlib import Path

import pytest
from blake3 import blake3

from contracts import GROUP, private_folder
from contracts.local import LocalChain
from requester.settings import RequesterSettings
from tests.lanes import FULL
from tests.ops.served import served
from worker import durable


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@FULL
def test_nobody_else_reads_what_a_service_keeps(tmp_path: Path) -> None:
    data, blob = tmp_path / "data", b"a stranger's bytes" * 100_000
    data.mkdir(mode=0o755)
    with served(data, None) as service:
        digest = f"blake3:{blake3(blob).hexdigest()}"
        assert service.http(service.token).put(f"/v1/blobs/{digest}", content=blob).status_code == 201
        found = {path.relative_to(data).as_posix(): mode(path) for path in (data, *data.rglob("*"))}
        service.end()
    chain = LocalChain.find_running_chain(data / "chain")
    assert chain is not None
    chain.stop()
    assert {name: oct(bits) for name, bits in found.items() if bits & 0o077} == {}
    assert {"gradmarket.sqlite", "chain/anvil.pid", "keys/token", "deployment.json"} <= found.keys()
    assert any(name.startswith("blobs/") and name.count("/") == 2 for name in found)


@pytest.mark.parametrize(("hidden", "left"), [(0o077, 0o700), (GROUP, 0o750)])
def test_a_folder_that_was_open_is_closed(tmp_path: Path, hidden: int, left: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    private_folder(folder, hidden)
    assert mode(folder) == left
    private_folder(tmp_path / "new" / "deep", hidden)
    assert mode(tmp_path / "new" / "deep") & hidden == 0


def test_a_proxy_of_the_folder_s_group_reads_along_where_one_is_named() -> None:
    assert RequesterSettings().hidden == 0o077
    assert RequesterSettings(proxy_blobs="/inside/blobs/", trusted_proxies=["127.0.0.1"]).hidden == 0o027


def test_a_workers_folder_is_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "worker"
    folder.mkdir()
    folder.chmod(0o755)
    durable.lock_worker_folder(folder).close()
    durable.write_file_atomically(folder / "held" / "payload", b"x")
    assert [mode(folder), mode(folder / "held"), mode(folder / "held" / "payload")] == [0o700, 0o700, 0o600]
