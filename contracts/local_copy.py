"""Copies a local chain: from the Anvil that runs in a folder, or from the state that it left there."""

import gzip
import json
from pathlib import Path

from contracts.local import STATE, LocalChain
from contracts.rpc import call_json_rpc
from gradmarket.network.chain_errors import LocalChainFailed


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
