"""Starts the requester's service and its chain as a user would."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts import deployment
from contracts.ledger import Ledger
from contracts.local import LocalChain
from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import ServiceProblem, ServiceUnreachable
from gradmarket.demo.children import LOOK_EVERY_S, DemoFailed, DemoProcess, DemoProcesses
from gradmarket.endpoint import Endpoint, find_endpoint

START_S: Final = 60.0


@dataclass(frozen=True)
class Service:
    data: Path
    place: Endpoint
    child: DemoProcess

    @property
    def chain(self) -> LocalChain | None:
        """Returns its local Anvil while that runs; it outlives the service on purpose."""
        return LocalChain.find_running_chain(self.data / "chain")

    def ledger(self) -> Ledger:
        """Returns the contract's state, read from the chain; raises DemoFailed if its Anvil is gone."""
        chain = self.chain
        if chain is None:
            raise DemoFailed("the local chain is gone")
        return Ledger(chain.connect(), deployment.load_deployment(self.data / "deployment.json"))


def start_service(children: DemoProcesses, data: Path, settings: Mapping[str, str] | None = None) -> Service:
    """Starts `gradmarket serve` on a free port and waits until it is ready. Raises DemoFailed if it is not in time.

    Nothing is audited there unless the settings name an auditor: strangers vote.
    """
    command = ["-m", "gradmarket", "serve", "--data", str(data), "--port", "0"]
    child = children.start("serve", command, {"GRADMARKET_AUDITOR": "none", **(settings or {})})
    until = time.monotonic() + START_S
    while not (data / "url").is_file():
        _wait_or_fail(children, until)
    endpoint = find_endpoint(data=data, url=(data / "url").read_text().strip())
    with endpoint.market() as market:
        while not is_service_ready(market):
            _wait_or_fail(children, until)
    return Service(data, endpoint, child)


def stop_chain(data: Path) -> None:
    """Ends the folder's Anvil if one runs."""
    chain = LocalChain.find_running_chain(data / "chain")
    if chain is not None:
        chain.stop()


def _wait_or_fail(children: DemoProcesses, until: float) -> None:
    children.check()
    if time.monotonic() > until:
        raise DemoFailed(f"the service does not answer within {START_S:.0f} s")
    time.sleep(LOOK_EVERY_S)


def is_service_ready(market: RequesterClient) -> bool:
    try:
        market.ready()
    except (ServiceUnreachable, ServiceProblem):
        return False
    return True
