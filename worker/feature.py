"""The hooks of a feature beside the worker's kernel, which calls them by these names and knows no feature."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar

import typer

from gradmarket.compute.held_rows import HeldRows
from gradmarket.market.terms import Address
from gradmarket.market.wire.poll import Lease, StepFault
from gradmarket.market.wire.sign_in import ChainFacts, ConsentRequest
from worker.markets.background import LeaseComputation
from worker.markets.market_session import MarketEntry, SessionPart, Shared
from worker.markets.scheduler import MarketSource
from worker.markets.worker_context import FindPause, WorkerContext
from worker.protocol.in_flight import InFlightFolder
from worker.settings import WorkerSettings


@dataclass(frozen=True)
class WalletLine:
    """One line of `wallet show`, in words and as JSON."""

    text: str
    fields: Mapping[str, object]


class WorkerFeature:
    """A feature whose hooks do nothing.

    `worker.features.FEATURES` lists them; `worker.run` and the commands import it.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of the features that this one imports."""
    serves: ClassVar[frozenset[str]] = frozenset()
    """Settings that have no effect without it."""

    commands: ClassVar[Mapping[str, Callable[..., None]]] = {}
    """Commands of `gradmarket worker`."""
    wallet_commands: ClassVar[Mapping[str, Callable[..., None] | typer.Typer]] = {}
    """Commands of `gradmarket wallet`, and groups of them."""

    def open_rows(self, settings: WorkerSettings) -> HeldRows | None:
        """Called when a session starts, before the folder is locked; returns rows of this machine's own."""
        return None

    def run_beside(self, shared: Shared) -> AbstractContextManager[object]:
        """Entered once a session's parts are set up, before it joins a market; left when it has redeemed the last
        voucher.

        The features are entered in their order.
        """
        return nullcontext()

    def market_source(self, shared: Shared) -> MarketSource | None:
        """Called once a session's parts are set up, before it joins a market; returns a further source of markets."""
        return None

    def find_consent(
        self, settings: WorkerSettings, facts: ChainFacts, worker: Address, payout: Address
    ) -> ConsentRequest | None:
        """Called before a market is signed in to; returns the payout key's consent for this market's contract."""
        return None

    def open_entry(self, shared: Shared, context: WorkerContext) -> MarketEntry | None:
        """Called after sign-in to a market; returns the steps to take there before it gives leases."""
        return None

    def open_session_part(self, context: WorkerContext, replica_files: InFlightFolder) -> SessionPart | None:
        """Called after sign-in to a market; returns a part that runs beside its loop."""
        return None

    def open_pause(self, settings: WorkerSettings, cards: Sequence[str]) -> FindPause | None:
        """Called when a session starts, with the uuids of the cards that compute; returns a check that may pause its
        tasks.

        Raises Refused for an owner's rule that this machine cannot follow.
        """
        return None

    def describe_fault(self, context: WorkerContext, lease: Lease, error: Exception) -> StepFault | None:
        """Called for an error of a lease's step, before another is computed; returns the report to the market."""
        return None

    def open_computation(self, context: WorkerContext, replica_files: InFlightFolder) -> LeaseComputation | None:
        """Called after sign-in to a market; returns a replacement for the computation of some jobs' leases."""
        return None

    def count_accusations(self, settings: WorkerSettings) -> int:
        """Called at a session's end; returns the number of accusations against the wallet that are not closed."""
        return 0

    def list_wallet_lines(
        self, settings: WorkerSettings, me: Address, warn: Callable[[str], None]
    ) -> Mapping[str, Sequence[WalletLine]]:
        """Called by `wallet show`; returns lines by their name in JSON. `warn` gets unknown facts, with the reason."""
        return {}
