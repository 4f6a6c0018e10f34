"""Watches over workers by their exports: contests accusations against them, and redeems their vouchers in time.

The tower keeps a copy of each worker's export in its own folder, which only ever gains: a truncated or older export
removes no voucher and no mandate. A voucher enters the copy once the chain names its signer, so that a forged one
displaces no true one. The tower sends by a key of its own, for whose gas it needs money.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from contracts import claims
from contracts.ledger import Ledger
from contracts.transactions import require_receipt
from gradmarket.market.errors import MarketError, NotFound, Refused
from gradmarket.market.messages import Payout
from gradmarket.market.money import TokenUnit
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.terms import Address, Hash, Units
from gradmarket.market.wire.sign_in import ChainFacts
from worker import durable
from worker.features.stakes import cases
from worker.features.stakes.accusation_watch import AccusationWatch
from worker.features.watchtower.watch_export import (
    INDEX,
    SignedPayout,
    WatchedChain,
    WatchExport,
    copy_records,
    read_export,
)
from worker.journal import Journal
from worker.money import known_chains
from worker.money.account_store import BOOK, AccountStore, JobAccount
from worker.money.chain_view import ChainView, ledger_of
from worker.money.redeemer import Redeemer, get_gas
from worker.settings import WorkerSettings
from worker.wallet import Wallet

WATCHED: Final = "watched"


class Watchtower:
    """Watches over the workers whose exports are in `places`, and those of its copies."""

    def __init__(self, settings: WorkerSettings, wallet: Wallet, places: Sequence[Path], journal: Journal) -> None:
        self._settings, self._wallet, self._places, self._journal = settings, wallet, places, journal
        self._workers: dict[Address, WatchedWorker] = {}
        self._unread = False
        for path in sorted((settings.data / WATCHED).glob(f"*/{INDEX}")):
            self._store_export(read_export(path.parent, wallet.address), path.parent)

    @property
    def workers(self) -> list[Address]:
        return list(self._workers)

    @property
    def troubled(self) -> bool:
        """Whether the last look left something undone."""
        return self._unread or any(one.troubled for one in self._workers.values())

    def look(self) -> bool:
        """Takes over new exports and looks after each worker. Returns whether all chains were read to the end."""
        self._unread = False
        for place in self._places:
            try:
                self._store_export(read_export(place, self._wallet.address), place)
            except (MarketError, OSError) as error:
                self._unread = True
                why = error.detail if isinstance(error, (NotFound, Refused)) else error
                with suppress(OSError):  # the log's disk may be full: cases are contested nevertheless
                    self._journal.once(
                        "watch_unread", f"{why}. A worker whose export was read before is watched all the same."
                    )
        return min([worker.look() for worker in self._workers.values()], default=True)

    def run(self, over: threading.Event) -> None:
        """Looks repeatedly until `over` is set."""
        behind = True
        while not over.wait(0.0 if behind else self._settings.watch_s):
            behind = not self.look()

    def _store_export(self, export: WatchExport, place: Path) -> None:
        folder = self._settings.data / WATCHED / export.worker
        worker = self._workers.get(export.worker)
        if worker is None:
            settings = self._settings.model_copy(update={"data": folder, "payout": None})
            worker = self._workers[export.worker] = WatchedWorker(settings, self._wallet, export.worker, self._journal)
        worker.take_export(export, place)


class WatchedWorker:
    """One worker's copy, and its watcher's actions for it. `settings.data` is the copy's folder."""

    def __init__(self, settings: WorkerSettings, wallet: Wallet, worker: Address, journal: Journal) -> None:
        self._settings, self._wallet, self._worker, self._journal = settings, wallet, worker, journal
        self._chains: dict[Hash, WatchedChain] = {}
        self._offered: list[JobAccount] = []
        self._judged: set[bytes | None] = set()
        self._views: dict[Hash, ChainView] = {}
        self._watch = AccusationWatch(settings, worker, self._contest, journal)
        self.troubled = False

    def take_export(self, export: WatchExport, place: Path) -> None:
        """Stores mandates and records; the vouchers wait until the chain names their signers."""
        folder = self._settings.data
        for chain in export.chains:
            if self._chains.get(chain.facts.instance) != chain:
                known_chains.store_chain_facts(folder, chain.facts)
                self._chains[chain.facts.instance] = chain
        known = self._judged | {one.signature for one in self._offered}
        self._offered += [one for one in export.accounts if one.vouchered and one.signature not in known]
        if place != folder:
            copy_records(place, folder)
            self._store_index()

    def look(self) -> bool:
        """Contests cases, then redeems due vouchers. Returns whether all chains were read to the end."""
        self.troubled = False
        read = self._watch.look()
        for chain in self._chains.values():
            try:
                self._see_to_money(chain)
            except (MarketError, OSError) as error:
                self.troubled = True
                text = f"Cannot look for what {self._worker} is owed on chain {chain.facts.chain_id}: {error}"
                with suppress(OSError):
                    self._journal.once("watch_unread", text, worker=self._worker)
        return read

    def _see_to_money(self, chain: WatchedChain) -> None:
        store = AccountStore(self._settings.data / BOOK)
        store.belongs_to(self._worker)
        view, money = self._open_chain(chain.facts), TokenUnit.of(chain.facts)
        self._check_gas_money(view.ledger)
        for account in [one for one in self._offered if one.domain == chain.facts.domain]:
            self._take_voucher(view, store, account)
        self._store_index()
        redeemer = Redeemer(view, self._wallet.key, store, self._journal, money, None, self._worker)
        redeem_at = None if self._settings.redeem_at is None else money.parse(self._settings.redeem_at)
        for account in redeemer.accounts():
            if redeemer.due(account, redeem_at, self._settings.redeem_before_s):
                if chain.payout is not None:
                    self._name_payout(view.ledger, chain.payout)
                self.troubled |= not redeemer.redeem(account)

    def _check_gas_money(self, ledger: Ledger) -> None:
        get_gas(ledger, self._wallet.address)
        if ledger.gas_money(self._wallet.address) == 0:
            self.troubled = True
            text = f"{self._wallet.address} has no gas money on chain {ledger.deployment.chain_id}: send it some."
            self._journal.once("watch_poor", text)

    def _take_voucher(self, view: ChainView, store: AccountStore, account: JobAccount) -> None:
        """Puts a voucher into the copy if the job's signer, by the chain, has signed it."""
        try:
            signer = view.opened(account.chain_job).signer
        except MarketError as error:
            self._leave_voucher_out(account, f"the chain does not answer its signer: {error}")
            return
        self._offered.remove(account)
        self._judged.add(account.signature)
        voucher = account.voucher(self._worker)
        if account.signature is None or not is_signed_by(account.domain, voucher, account.signature, signer):
            self._leave_voucher_out(account, "it is not signed by the job's signer")
            return
        if store.find(account.domain, account.chain_job) is None:
            nothing = {"vouchered": Units(0), "redeemed": Units(0), "signature": None, "closed": False}
            store.record_offer(account.model_copy(update={"signer": signer, **nothing}))
        store.take(store.account(account.domain, account.chain_job), voucher, account.signature, Units(0))
        store.save()

    def _leave_voucher_out(self, account: JobAccount, why: str) -> None:
        self.troubled = True
        text = f"A voucher of job {account.chain_job} for {self._worker} is left out: {why}."
        self._journal.once("watch_left_out", text, worker=self._worker, chain_job=account.chain_job)

    def _name_payout(self, ledger: Ledger, signed: SignedPayout) -> None:
        """Registers the payout address that the worker signed, unless it has changed it since."""
        if ledger.payout_nonce(self._worker) == signed.nonce:
            get_gas(ledger, self._wallet.address)
            message = Payout(self._worker, signed.payout, signed.nonce)
            require_receipt(claims.set_payout_for(ledger, self._wallet.key, message, signed.signature))

    def _contest(self, ledger: Ledger, name: str) -> None:
        chain = self._chains[ledger.deployment.instance]
        try:
            cases.contest_for(ledger, self._wallet.key, name, chain.mandate)
        except MarketError:
            self.troubled = True
            raise

    def _open_chain(self, facts: ChainFacts) -> ChainView:
        if facts.instance not in self._views:
            self._views[facts.instance] = ChainView(ledger_of(self._settings.node, facts), self._worker)
        return self._views[facts.instance]

    def _store_index(self) -> None:
        """Stores mandates, and the vouchers that are not judged yet."""
        chains, waiting = tuple(self._chains.values()), tuple(self._offered)
        kept = WatchExport(worker=self._worker, watcher=self._wallet.address, chains=chains, accounts=waiting)
        data, path = kept.model_dump_json(indent=1).encode(), self._settings.data / INDEX
        if not path.is_file() or path.read_bytes() != data:
            durable.write_file_atomically(path, data)
