"""One Anvil per folder, whoever starts it and however its starter ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from eth_utils.address import to_checksum_address

from contracts import local
from contracts.local import CHAIN_ID, AlreadyRuns, LocalChain, development_key, fund_gas
from contracts.processes import has_open_file, has_process_ended, listening_port
from gradmarket.market.signing import address_of
from gradmarket.network.chain_errors import LocalChainFailed
from tests.lanes import FULL
from tests.onchain import wait_until_dumped
from tests.patience import wait_until

ONE = to_checksum_address("0x" + "11" * 20)
STARTER = """
import signal, sys
from pathlib import Path
from contracts.local import LocalChain
chain = LocalChain.open(Path(sys.argv[1])) if sys.argv[1] else LocalChain.start(None)
print(chain.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of a chain; whatever runs there at the end is stopped."""
    yield tmp_path
    running = LocalChain.find_running_chain(tmp_path)
    if running is not None:
        running.stop()


def killed_starter(directory: Path | None) -> int:
    """The pid of an Anvil whose starter was killed with SIGKILL."""
    command = [sys.executable, "-c", STARTER, str(directory or "")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        starter.kill()
    return pid


def test_state_survives_a_stop(folder: Path) -> None:
    first = LocalChain.start(folder)
    fund_gas(first.connect(), ONE, 77)
    genesis = first.connect().eth.get_block(0)["hash"]
    first.stop()
    assert not first.alive
    second = LocalChain.start(folder)
    try:
        assert second.connect().eth.get_balance(ONE) == 77
        assert second.connect().eth.get_block(0)["hash"] == genesis
    finally:
        second.stop()


def test_a_second_start_is_refused_and_open_gives_the_first(folder: Path) -> None:
    chain = LocalChain.open(folder)
    try:
        with pytest.raises(AlreadyRuns):
            LocalChain.start(folder)
        assert LocalChain.open(folder) == chain == LocalChain.find_running_chain(folder)
    finally:
        chain.stop()
    assert LocalChain.find_running_chain(folder) is None


def test_callers_at_once_get_the_same_chain(folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        chains = set(pool.map(lambda _: LocalChain.open(folder), range(4)))
    (chain,) = chains
    chain.stop()


@FULL
def test_a_local_chain_outlives_its_starter_and_can_be_stopped_later(folder: Path) -> None:
    pid = killed_starter(folder)
    chain = LocalChain.open(folder)
    assert chain.pid == pid
    fund_gas(chain.connect(), "0x" + "22" * 20, 5)
    chain.stop()
    assert has_process_ended(pid)


@FULL
def test_without_folder_ends_with_starter() -> None:
    pid = killed_starter(None)
    wait_until(lambda: has_process_ended(pid))


def test_a_killed_anvil_is_started_anew_from_its_state(folder: Path) -> None:
    chain = LocalChain.open(folder)
    fund_gas(chain.connect(), ONE, 9)
    wait_until_dumped(folder)
    os.kill(chain.pid, signal.SIGKILL)
    wait_until(lambda: has_process_ended(chain.pid))
    assert LocalChain.find_running_chain(folder) is None
    again = LocalChain.open(folder)
    try:
        assert again.connect().eth.get_balance(ONE) == 9
    finally:
        again.stop()


def test_somebody_else_s_process_is_not_taken_for_the_chain(folder: Path) -> None:
    (folder / "anvil.lock").touch()
    (folder / "anvil.pid").write_text(str(os.getpid()))
    assert LocalChain.find_running_chain(folder) is None


def test_a_half_written_state_is_named_and_the_one_before_kept(folder: Path) -> None:
    first = LocalChain.start(folder)
    fund_gas(first.connect(), ONE, 77)
    first.stop()
    LocalChain.start(folder).stop()
    state = folder / "anvil-state.json"
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(LocalChainFailed, match=r"anvil-state\.previous\.json") as caught:
        LocalChain.open(folder)
    assert str(state) in str(caught.value)
    (folder / "anvil-state.previous.json").replace(state)
    again = LocalChain.open(folder)
    try:
        assert again.connect().eth.get_balance(ONE) == 77
    finally:
        again.stop()


def test_a_taken_port_is_refused(folder: Path) -> None:
    chain = LocalChain.start(None)
    try:
        port = listening_port(chain.pid)
        assert port is not None
        with pytest.raises(LocalChainFailed):
            LocalChain.start(folder, port=port)
    finally:
        chain.stop()


def test_development_keys_are_the_ones_anvil_funds(anvil: LocalChain) -> None:
    web3 = anvil.connect()
    assert [address_of(key) for key in map(development_key, range(10))] == [
        str(account) for account in web3.eth.accounts
    ]
    assert web3.eth.chain_id == CHAIN_ID


def test_an_open_file_is_found_at_its_process(folder: Path) -> None:
    path = folder / "held"
    with path.open("w"):
        assert has_open_file(os.getpid(), path)
    assert not has_open_file(os.getpid(), path)


def test_a_chain_that_does_not_answer_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "START_S", 0.0)
    with pytest.raises(LocalChainFailed):
        LocalChain.start(tmp_path)
    pid = int((tmp_path / "anvil.pid").read_text())
    wait_until(lambda: has_process_ended(pid))
