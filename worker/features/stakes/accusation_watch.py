"""Watches the chain for accusations against this wallet in a thread of its own, while the worker runs.

A worker that does not contest is slashed, and contesting costs only gas. So every accusation of a stake is contested at
once, and one of locked pay, which silence does not burn, is reported to the owner alone. One check costs a single call
for a chain without either; else it costs a few more calls and reads at most SPANS spans of events.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, ValidationError

from contracts import events, stakes
from contracts.event_types import JobOpened
from contracts.ledger import Ledger
from contracts.rpc import LOG_SPAN
from contracts.stakes import CaseStage
from gradmarket.market.errors import MarketError
from gradmarket.market.fields import DeferredModel
from gradmarket.market.money import TokenUnit
from gradmarket.market.rules.proof import OfferScope
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.sign_in import ChainFacts
from worker import durable
from worker.features.stakes import cases
from worker.features.stakes.cases import WalletCase
from worker.features.verify import proofs
from worker.journal import Journal
from worker.money import known_chains
from worker.money.account_store import BOOK, AccountStore
from worker.money.chain_view import ledger_of
from worker.protocol import records
from worker.settings import WorkerSettings
from worker.wallet import Wallet

SPANS: Final = 20
"""Spans of LOG_SPAN blocks read in one check. A worker that is further behind checks again at once."""
AGAIN: Final = 64
"""Blocks that are read again, because a reorganization may have replaced them."""
AT_ONCE: Final = 32
"""Contested cases read again in one check. All others are always read; opening a case costs the requester its bond."""
Contest = Callable[[Ledger, str], None]
"""Contests the case of this name. Raises MarketError if that fails."""
OPEN, CONTESTED, CLOSED, VESTED = (
    stage.name.lower() for stage in (CaseStage.OPEN, CaseStage.CONTESTED, CaseStage.CLOSED, CaseStage.VESTED)
)
WITH_VALIDATORS = (CONTESTED, VESTED)


THREAD_STOP_S: Final = 5.0


@contextmanager
def running_thread(name: str, run: Callable[[], object], over: threading.Event) -> Iterator[None]:
    """Calls `run` in a new thread, which ends once `over` is set: at the end of the `with` block, or soon after it."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=THREAD_STOP_S)


class WatchProgress(DeferredModel):
    """The progress on one chain: the next block, and each known case with its last known stage, the last read last."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    block: int
    cases: dict[str, str] = {}

    @property
    def standing(self) -> list[str]:
        """Returns the cases that are not closed."""
        return [name for name, stage in self.cases.items() if stage != CLOSED]


class AccusationWatch:
    """Contests accusations; `standing` counts those against `accused` that were not closed at the last check."""

    def __init__(self, settings: WorkerSettings, accused: Address, contest: Contest, journal: Journal) -> None:
        self._settings, self._accused, self._contest, self._journal = settings, accused, contest, journal
        self._ledgers: dict[Hash, Ledger] = {}
        self._opened: dict[tuple[Hash, int], JobOpened] = {}
        self._over = threading.Event()

    @classmethod
    def of_wallet(cls, settings: WorkerSettings, wallet: Wallet, journal: Journal) -> "AccusationWatch":
        """Returns a watch over the wallet's own key, which contests."""
        return cls(settings, wallet.address, lambda ledger, name: cases.contest_one(ledger, wallet.key, name), journal)

    @contextmanager
    def running(self) -> Iterator["AccusationWatch"]:
        """Runs the checks in a thread until the `with` block ends."""
        with running_thread("watch", self._run_until_stopped, self._over):
            yield self

    @property
    def standing(self) -> int:
        return count_open_cases(self._settings)

    def look(self) -> bool:
        """Checks every chain on which this worker was paid or staked; returns whether all were read to the end."""
        return min(
            [self._try_to_read_chain(facts) for facts in known_chains.list_known_chains(self._settings.data)],
            default=True,
        )

    def _run_until_stopped(self) -> None:
        behind = True
        while not self._over.wait(0.5 if behind else self._settings.watch_s):
            behind = not self.look()

    def _try_to_read_chain(self, facts: ChainFacts) -> bool:
        try:
            return self._read_chain(facts)
        except (MarketError, OSError) as error:
            text = f"Cannot look for accusations on chain {facts.chain_id}: {error}"
            with suppress(OSError):  # the log's disk may be full, and the next look comes nevertheless
                self._journal.once("watch", text, chain_id=facts.chain_id)
            return True

    def _read_chain(self, facts: ChainFacts) -> bool:
        ledger = self._open_ledger(facts)
        seen = _load_progress(self._settings.data, facts)
        first = max(facts.block, seen.block - AGAIN)
        if stakes.staker(ledger, self._accused).exposed == 0 and not seen.standing:
            vesting = self._list_vesting_jobs(ledger, facts)
            if not vesting:
                return True
            first = max(first, min(job.block for job in vesting))
        height = ledger.height()
        last = min(height, first + SPANS * LOG_SPAN - 1)
        accusations = events.accused(ledger, self._accused, first, last)
        new = {name: "" for one in accusations if (name := "0x" + one.case.hex()) not in seen.cases}
        known = seen.model_copy(update={"cases": seen.cases | new})
        # first all that are not known to be with validators, the largest amount first; then those not read for longest
        with_validators = [name for name in known.standing if known.cases[name] in WITH_VALIDATORS]
        urgent = [
            cases.fetch_case(ledger, cases.parse_case_name(name))
            for name in known.standing
            if known.cases[name] not in WITH_VALIDATORS
        ]
        urgent.sort(key=lambda case: int(case.amount), reverse=True)
        others = (cases.fetch_case(ledger, cases.parse_case_name(name)) for name in with_validators[:AT_ONCE])
        stages = {
            case.case: self._see_to(ledger, facts, case, known.cases[case.case]) for case in chain(urgent, others)
        }
        unread = {name: stage for name, stage in known.cases.items() if name not in stages}
        self._store_progress(facts, WatchProgress(block=last + 1, cases={**unread, **stages}))
        return last >= height

    def _list_vesting_jobs(self, ledger: Ledger, facts: ChainFacts) -> list[JobOpened]:
        """Returns the jobs that may keep some of this worker's pay locked."""
        accounts = [one for one in AccountStore(self._settings.data / BOOK).accounts if not one.closed]
        jobs = {one.chain_job for one in accounts if one.instance == facts.instance}
        for job in jobs:
            if (facts.instance, job) not in self._opened:
                self._opened[facts.instance, job] = events.opened_job(ledger, job)
        return [opened for job in jobs if (opened := self._opened[facts.instance, job]).vest]

    def _see_to(self, ledger: Ledger, facts: ChainFacts, case: WalletCase, before: str) -> str:
        """Returns the case's stage. Logs it if it differs from `before`, and contests the case if it is open.

        It is contested even where a full disk or a damaged book prevents logging.
        """
        try:
            if case.stage != before:
                self._log_accusation(facts, case, before)
        finally:
            stage = self._contest_case(ledger, case)
        return stage

    def _contest_case(self, ledger: Ledger, case: WalletCase) -> str:
        if case.stage != OPEN or not self._settings.contest:
            return case.stage
        try:
            self._contest(ledger, case.case)
        except MarketError as error:
            text = f"NOT contested yet: {case.case}: {error}. It is tried again; see to gas money and the node."
            self._journal.report("contest_failed", text, case=case.case)
            return case.stage
        text = f"Contested {case.case}: now the validators of job {case.chain_job} decide, not its requester alone."
        self._journal.report("contested", text, case=case.case)
        return CONTESTED

    def _log_accusation(self, facts: ChainFacts, case: WalletCase, before: str) -> None:
        sum_ = TokenUnit.of(facts).text(int(case.amount))
        pledged = "locked pay" if VESTED in (case.stage, before) else "stake"
        outcome = (
            f"{sum_} of its {pledged} in job {case.chain_job} of chain {case.chain_id} (case {case.case}, {case.stage})"
        )
        word = "An accusation is over" if case.stage == CLOSED else "ACCUSED"
        self._journal.report(
            "accused", f"{word}: {outcome}. {self._describe_own_evidence(facts, case)}", **asdict(case)
        )

    def _describe_own_evidence(self, facts: ChainFacts, case: WalletCase) -> str:
        """Returns a text on this worker's own records of its answers in that job, for the judges of the case."""
        account_store = AccountStore(self._settings.data / BOOK)
        account = next(
            (
                one
                for one in account_store.accounts
                if one.instance == facts.instance and one.chain_job == case.chain_job
            ),
            None,
        )
        kept = list(records.load_records(self._settings.data, account.domain, case.chain_job)) if account else []
        answers, me = [record for record in kept if record.prepared is not None], self._accused
        if account is None or not answers:
            return "This worker's records have no answer of its in that job: it cannot have given a wrong one."
        opened = sum(
            proofs.is_commitment_opened(OfferScope(account.domain, account.signer, record.offer), me, record)
            for record in answers
        )
        path = records.file_of(self._settings.data, Hash(facts.instance), case.chain_job)
        return f"Its records have {len(answers)} answers there, {opened} of which open what it committed to: {path}."

    def _open_ledger(self, facts: ChainFacts) -> Ledger:
        if facts.instance not in self._ledgers:
            self._ledgers[facts.instance] = ledger_of(self._settings.node, facts)
        return self._ledgers[facts.instance]

    def _store_progress(self, facts: ChainFacts, seen: WatchProgress) -> None:
        durable.write_file_atomically(
            _build_progress_path(self._settings.data, facts), seen.model_dump_json().encode(), synced=False
        )


def count_open_cases(settings: WorkerSettings) -> int:
    """Counts the accusations against this wallet that were not closed at the last check."""
    chains = known_chains.list_known_chains(settings.data)
    return sum(len(_load_progress(settings.data, facts).standing) for facts in chains)


def _load_progress(folder: Path, facts: ChainFacts) -> WatchProgress:
    path = _build_progress_path(folder, facts)
    try:
        if path.is_file():
            return WatchProgress.model_validate_json(path.read_bytes())
    except ValidationError:
        pass
    return WatchProgress(block=facts.block)


def skip_earlier_blocks(folder: Path, facts: ChainFacts, ledger: Ledger, me: Address) -> None:
    """Skips the blocks before a wallet's first stake: no accusation of it can be in them. Known cases stay known."""
    seen = _load_progress(folder, facts)
    if stakes.staker(ledger, me).exposed == 0 and not seen.standing:
        skipped = seen.model_copy(update={"block": ledger.height()})
        durable.write_file_atomically(_build_progress_path(folder, facts), skipped.model_dump_json().encode())


def _build_progress_path(folder: Path, facts: ChainFacts) -> Path:
    return folder / "watch" / f"{facts.instance.hex()}.json"
