"""Runs a local chain: Anvil as a separate process, which outlives the process that started it.

A chain with a folder holds an exclusive lock on its `anvil.lock` by a descriptor that Anvil inherits. The lock is held
exactly as long as that Anvil lives, so no second one can start on its state, and the lock identifies the process.
Anvil is quiet and writes to no pipe, so that nobody has to drain one and the end of its parent does not end it.
A chain without a folder ends with its parent.

A chain is copied from the Anvil that runs in a folder, or from the state that it left there.
"""

import fcntl
import gzip
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from eth_account import Account
from eth_keys.datatypes import PrivateKey
from web3 import Web3

from contracts import private_folder
from contracts.calls import mint
from contracts.ledger import Ledger
from contracts.processes import has_open_file, has_process_ended, listening_port
from contracts.rpc import call_json_rpc, connect_to_node
from contracts.toolchain import locate_tool
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.terms import Address, Amount
from gradmarket.network.chain_errors import ChainUnreachable, LocalChainFailed

CHAIN_ID: Final = 31337
START_S: Final = 20.0
STOP_S: Final = 20.0
GAS_MONEY: Final = 10**19
"""Wei that a holder keeps (local_grant)."""
GAS_GIFT: Final = 10**18
"""Wei of a gift to a new worker: enough to redeem for years."""
_MNEMONIC: Final = "test test test test test test test test test test test junk"
_LOCK, _PID, _LOG = "anvil.lock", "anvil.pid", "anvil.log"
STATE, _PREVIOUS = "anvil-state.json", "anvil-state.previous.json"

_LAUNCH: Final = 'pid=$1 log=$2; shift 2; "$@" </dev/null >/dev/null 2>"$log" & echo $! | tee -- "$pid"'
_LAUNCH_LEASHED: Final = """exec 3<&0; "$@" </dev/null >/dev/null 2>&1 3<&- & pid=$!; echo $pid
{ cat <&3; kill $pid; } >/dev/null 2>&1 &"""
"""Anvil ends when the pipe on standard input closes, and the pipe closes when the process at its other end does."""


@cache
def development_key(index: int = 0) -> PrivateKey:
    """Returns the key of one of the ten accounts that Anvil funds, which is public. It takes some milliseconds."""
    Account.enable_unaudited_hdwallet_features()
    return PrivateKey(bytes(Account.from_mnemonic(_MNEMONIC, account_path=f"m/44'/60'/0'/0/{index}").key))


class AlreadyRuns(LocalChainFailed):
    """A local Anvil already runs there."""


@dataclass(frozen=True)
class LocalChain:
    """A running Anvil; `directory` holds its state, or is None if the state is lost when the process ends."""

    url: str
    pid: int
    directory: Path | None
    leash: int | None = None
    """Our end of the pipe that keeps a chain without a folder running."""

    @classmethod
    def start(
        cls,
        directory: Path | None,
        port: int = 0,
        block_time: int | None = None,
        chain_id: int = CHAIN_ID,
        history: bool = False,
    ) -> "LocalChain":
        """Starts Anvil on 127.0.0.1 (port 0: any), with a block per transaction or every `block_time` seconds.

        A `chain_id` that is not a local one's simulates a chain whose money has value. With `history` it keeps the
        states of old blocks, which a re-org needs.

        Raises AlreadyRuns if one runs in the folder, LocalChainFailed if its state is damaged or the port is taken.
        """
        command = _build_anvil_command(port, block_time, chain_id, history)
        if directory is None:
            read_end, write_end = os.pipe()
            launch = ["/bin/sh", "-c", _LAUNCH_LEASHED, "sh", *command]
            pid = int(subprocess.check_output(launch, stdin=read_end, start_new_session=True))
            os.close(read_end)
            return _wait_or_end_process(pid, None, write_end)
        private_folder(directory)
        with (directory / _LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise AlreadyRuns(str(directory)) from error
            _back_up_previous(directory)
            files = [str(directory / _PID), str(directory / _LOG)]
            state = ["--state", str(directory / STATE), "--state-interval", "1"]
            launch = ["/bin/sh", "-c", _LAUNCH, "sh", *files, *command, *state]
            kept, empty = (lock.fileno(),), subprocess.DEVNULL
            pid = int(subprocess.check_output(launch, pass_fds=kept, start_new_session=True, stdin=empty))
            return _wait_or_end_process(pid, directory)

    @classmethod
    def find_running_chain(cls, directory: Path) -> "LocalChain | None":
        """Returns the Anvil that runs on the folder's state, whichever process started it; None if none does."""
        pid = _recorded_pid(directory)
        if pid is None or not has_open_file(pid, directory / _LOCK):
            return None
        return _when_it_answers(pid, directory)

    @classmethod
    def open(cls, directory: Path, port: int = 0, block_time: int | None = None) -> "LocalChain":
        """Returns the folder's running chain, or starts it from its state. Concurrent callers get the same chain."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            running = cls.find_running_chain(directory)
            if running is not None:
                return running
            try:
                return cls.start(directory, port, block_time)
            except AlreadyRuns:
                time.sleep(0.05)
        raise LocalChainFailed(f"{directory / _LOCK} is held by a program that is not an Anvil started by gradmarket")

    def revive(self) -> bool:
        """Starts the folder's chain again, from its state and on the same port, if its process has ended.

        Returns whether it did. Blocks that Anvil had not saved, of one second at most, are lost. Raises
        LocalChainFailed if it does not start.
        """
        if self.directory is None:
            return False
        pid = _recorded_pid(self.directory)
        if pid is not None and has_open_file(pid, self.directory / _LOCK):
            return False
        try:
            LocalChain.start(self.directory, int(self.url.rpartition(":")[2]))
        except AlreadyRuns:
            return False
        return True

    @property
    def alive(self) -> bool:
        return not has_process_ended(self.pid)

    def connect(self) -> Web3:
        return connect_to_node(self.url)

    def stop(self) -> None:
        """Sends SIGTERM, on which Anvil saves its state, and waits for its end; raises LocalChainFailed if it stays."""
        if not has_process_ended(self.pid):
            os.kill(self.pid, signal.SIGTERM)
        if not _wait_until(lambda: has_process_ended(self.pid), STOP_S):
            raise LocalChainFailed(f"process {self.pid} does not end")
        if self.leash is not None:
            os.close(self.leash)


def fund_gas(web3: Web3, address: str, wei: int) -> None:
    """Sets `address`'s gas balance; raises LocalChainFailed on any chain but a local Anvil's."""
    if web3.eth.chain_id != CHAIN_ID:
        raise LocalChainFailed("free gas exists only on a local chain")
    call_json_rpc(web3, "anvil_setBalance", address, hex(wei))


def give_gas(ledger: Ledger, worker: Address) -> None:
    if ledger.gas_money(worker) < GAS_GIFT // 10:
        fund_gas(ledger.web3, worker, GAS_GIFT)


def local_grant(ledger: Ledger, holder: Address) -> Callable[[Amount], None]:
    """Returns a function by which the development wallet keeps `holder` in gas money and tokens."""

    def grant(amount: Amount) -> None:
        if ledger.gas_money(holder) < GAS_MONEY // 2:
            fund_gas(ledger.web3, holder, GAS_MONEY)
        short = amount - ledger.balance(holder)
        if short > 0:
            call = mint(ledger.deployment.token, holder, Amount(short))
            require_receipt(execute_call(ledger.web3, development_key(), call))

    return grant


def _build_anvil_command(port: int, block_time: int | None, chain_id: int, history: bool) -> list[str]:
    command = [
        str(locate_tool("anvil")),
        "--quiet",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--mnemonic",
        _MNEMONIC,
    ]
    command += ["--chain-id", str(chain_id), *([] if history else ["--prune-history"])]
    return command + (["--block-time", str(block_time)] if block_time else [])


def _back_up_previous(directory: Path) -> None:
    """Backs up the state if it is complete; raises LocalChainFailed if not.

    Anvil writes the state in place, so that killing it meanwhile leaves an incomplete one.
    """
    state, previous = directory / STATE, directory / _PREVIOUS
    if not state.is_file():
        return
    try:
        json.loads(state.read_bytes())
    except ValueError as error:
        kept = f"; put {previous} in its place to go on from the last start" if previous.is_file() else ""
        raise LocalChainFailed(f"{state} was left half written{kept}") from error
    shutil.copyfile(state, previous)


def _wait_or_end_process(pid: int, directory: Path | None, leash: int | None = None) -> LocalChain:
    """Waits as `_when_it_answers` does; ends the process that this one started where it never answers."""
    try:
        return _when_it_answers(pid, directory, leash)
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        raise


def _when_it_answers(pid: int, directory: Path | None, leash: int | None = None) -> LocalChain:
    """Waits until the process listens and answers; raises LocalChainFailed, with the end of its log, if it does not."""
    if not _wait_until(lambda: has_process_ended(pid) or listening_port(pid) is not None, START_S) or has_process_ended(
        pid
    ):
        log = directory / _LOG if directory else None
        words = log.read_text(errors="replace").strip()[-500:] if log and log.is_file() else "no word from it"
        raise LocalChainFailed(f"Anvil does not start: {words}")
    chain = LocalChain(f"http://127.0.0.1:{listening_port(pid)}", pid, directory, leash)
    if not _wait_until(lambda: _is_answering(chain), START_S):
        raise LocalChainFailed(f"Anvil (process {pid}) does not answer")
    return chain


def _is_answering(chain: LocalChain) -> bool:
    try:
        return bool(call_json_rpc(chain.connect(), "eth_chainId"))
    except ChainUnreachable:
        return False


def _recorded_pid(directory: Path) -> int | None:
    try:
        return int((directory / _PID).read_text())
    except (FileNotFoundError, ValueError):
        return None


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def is_chain_resumable(directory: Path) -> bool:
    """Returns whether the folder has a chain that runs or can be started again."""
    return (directory / STATE).is_file() or LocalChain.find_running_chain(directory) is not None


def copy_state(directory: Path, to: Path) -> bool:
    """Copies the chain as it is now into the new folder `to`; returns False if the folder has none.

    Raises LocalChainFailed if the state is damaged.
    """
    running = LocalChain.find_running_chain(directory)
    if running is not None:
        state = gzip.decompress(bytes.fromhex(call_json_rpc(running.connect(), "anvil_dumpState")[2:]))
    elif (directory / STATE).is_file():
        state = (directory / STATE).read_bytes()
    else:
        return False
    try:
        json.loads(state)
    except ValueError as error:
        raise LocalChainFailed(f"{directory / STATE} was left half written") from error
    to.mkdir(parents=True, exist_ok=True)
    (to / STATE).write_bytes(state)
    return True
