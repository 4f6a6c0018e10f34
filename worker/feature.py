"""What a feature may do beside the worker's kernel, which asks each of them by these names and knows none of theirs."""

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
    """By default it does nothing. `worker.features.FEATURES` has them; `worker.run` and the commands import it."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of the features that this one imports."""
    serves: ClassVar[frozenset[str]] = frozenset()
    """Settings that mean nothing without it."""

    commands: ClassVar[Mapping[str, Callable[..., None]]] = {}
    """Commands of `gradmarket worker`."""
    wallet_commands: ClassVar[Mapping[str, Callable[..., None] | typer.Typer]] = {}
    """Commands of `gradmarket wallet`, and groups of them."""

    def open_rows(self, settings: WorkerSettings) -> HeldRows | None:
        """Called when a session starts, before the folder is locked; returns rows of this machine's own."""
        return None

    def run_beside(self, shared: Shared) -> AbstractContextManager[object]:
        """Entered once a session's parts are set up, before it joins a market; left when it redeemed the last voucher.

        The features are entered in their order.
        """
        return nullcontext()

    def market_source(self, shared: Shared) -> MarketSource | None:
        """Called once a session's parts are set up, before it joins a market; returns where else it finds markets."""
        return None

    def find_consent(
        self, settings: WorkerSettings, facts: ChainFacts, worker: Address, payout: Address
    ) -> ConsentRequest | None:
        """Called before a market is signed in to; returns the payout key's consent for this market's contract."""
        return None

    def open_entry(self, shared: Shared, context: WorkerContext) -> MarketEntry | None:
        """Called when a market was signed in to; returns what is to be done there before it gives leases."""
        return None

    def open_session_part(self, context: WorkerContext, replica_files: InFlightFolder) -> SessionPart | None:
        """Called when a market was signed in to; returns what runs beside its loop."""
        return None

    def open_pause(self, settings: WorkerSettings, cards: Sequence[str]) -> FindPause | None:
        """Called when a session starts, with the uuids of the cards that compute; returns what keeps it from tasks.

        Raises Refused for a rule of the owner's that nothing here can follow.
        """
        return None

    def describe_fault(self, context: WorkerContext, lease: Lease, error: Exception) -> StepFault | None:
        """Called for an error of a lease's step, before another is computed; returns what the market hears of it."""
        return None

    def open_computation(self, context: WorkerContext, replica_files: InFlightFolder) -> LeaseComputation | None:
        """Called when a market was signed in to; returns what computes some jobs' leases in its place."""
        return None

    def count_accusations(self, settings: WorkerSettings) -> int:
        """Called at a session's end; returns how many accusations against the wallet are not closed."""
        return 0

    def list_wallet_lines(
        self, settings: WorkerSettings, me: Address, say: Callable[[str], None]
    ) -> Mapping[str, Sequence[WalletLine]]:
        """Called by `wallet show`; returns lines by their name in JSON. `say` gets what is not known, and why."""
        return {}
