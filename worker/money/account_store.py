"""The worker's accounts on disk: earnings, the newest voucher of every job, and how each requester behaved.

Verdicts raise `earned` and vouchers raise `vouchered`; the difference is unpaid. The loop calls `keep` to sync the
changes of one response of the market to disk before it sends the next poll and before it takes the next task.

They name their wallet, and no other key works, shows or verifies by them.
"""

import time
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, Field

from gradmarket.market.errors import Conflict, NotFound, Refused, SignatureRefused
from gradmarket.market.fields import AddressField, AmountField, DeferredModel, HashField, SignatureField
from gradmarket.market.messages import Voucher
from gradmarket.market.release import SILENT
from gradmarket.market.signing import Domain, digest_struct, recover_signer
from gradmarket.market.terms import Address, Amount, JobId, ReplicaId, Units
from gradmarket.market.wire import UnitsField
from worker import durable, wallet
from worker.protocol.policy import unpaid_gradients

REMEMBERED: Final = 256
"""Replicas remembered per job, so that a repeated verdict counts once. Far more than are ever in flight."""


NO_UNITS: Final = Units(0)


class Stored(DeferredModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class JobAccount(Stored):
    """One job's money, in units. `price` is the price of the newest offer."""

    chain_id: int
    contract: AddressField
    instance: HashField
    chain_job: int = Field(ge=0, lt=2**256)
    job: JobId
    signer: AddressField
    unit: AmountField
    price: UnitsField = Units(0)
    earned: UnitsField = Units(0)
    vouchered: UnitsField = Units(0)
    signature: SignatureField | None = None
    redeemed: UnitsField = Units(0)
    """The cumulative sum that the chain has paid out, or burnt after a ruling."""
    burnt: UnitsField = Units(0)
    """The burnt part of it."""
    lost: UnitsField = Units(0)
    """The part of the newest voucher that the contract had not credited when claims ended."""
    closed: bool = False
    """Everything is redeemed and the reservation is released."""
    closed_at: float = 0.0
    """When it was closed, in Unix seconds of this machine; 0 where an earlier version closed it."""
    accepted: int = 0
    rejected: int = 0
    counted: tuple[ReplicaId, ...] = ()
    may_wait: int = 0
    """Accepted gradients whose pay may wait for a test of this worker (market.features.loss_change)."""
    protocol: int = SILENT
    """The protocol of the work for it (market.release)."""

    @property
    def domain(self) -> Domain:
        return Domain(self.chain_id, self.contract, self.instance)

    @property
    def redeemable(self) -> Units:
        """Returns the newest voucher's excess over the sum already paid out and that lost."""
        return Units(max(0, self.vouchered - self.lost - self.redeemed))

    @property
    def received(self) -> Units:
        """Returns the sum that the chain has paid out."""
        return Units(self.redeemed - self.burnt)

    @property
    def unpaid(self) -> int:
        """Returns the number of accepted gradients that no voucher covers."""
        return unpaid_gradients(self.earned, self.vouchered, self.price)

    @property
    def owed(self) -> int:
        """Returns how many of these the requester counts as owing: those beyond the number that may wait for a test."""
        return max(0, self.unpaid - self.may_wait)

    def is_closed_within(self, seconds: float) -> bool:
        """Returns whether it was closed in these last seconds."""
        return self.closed and time.time() - self.closed_at < seconds

    def voucher(self, worker: Address) -> Voucher:
        return Voucher(self.chain_job, worker, self.vouchered)


class Dealings(Stored):
    """One requester's behaviour, by its signer, over all its jobs. Each grievance counts as one unpaid gradient."""

    offers: int = 0
    accepted: int = 0
    rejected: int = 0
    grievances: tuple[str, ...] = ()


class AccountsFile(Stored):
    """`wallet` owns these accounts; files of earlier versions do not name it."""

    wallet: AddressField | None = None
    accounts: tuple[JobAccount, ...] = ()
    dealings: dict[AddressField, Dealings] = {}


class AccountStore:
    """Holds all accounts in memory; `keep` writes the changes to disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # nothing of a damaged file is guessed
        text = path.read_bytes() if path.is_file() else None
        try:
            self._pages = AccountsFile.model_validate_json(text) if text else AccountsFile()
        except ValueError as error:
            fix = "put the file back from a copy, or take another folder with --data"
            raise Refused(f"{path}, which has the vouchers, is damaged", fix) from error
        self._kept = self._pages

    @property
    def wallet(self) -> Address | None:
        """Returns the owner of these accounts; None if none is recorded yet."""
        return self._pages.wallet

    def belongs_to(self, wallet: Address) -> None:
        """Records the owner of these accounts."""
        if self.wallet is None:
            self._pages = self._pages.model_copy(update={"wallet": wallet})

    @property
    def accounts(self) -> tuple[JobAccount, ...]:
        return self._pages.accounts

    def find(self, domain: Domain, chain_job: int) -> JobAccount | None:
        of_job = (a for a in self.accounts if a.instance == domain.instance and a.chain_job == chain_job)
        return next((account for account in of_job if account.domain == domain), None)

    def account(self, domain: Domain, chain_job: int) -> JobAccount:
        """Returns the job's account; raises NotFound if this worker never took an offer of the job."""
        if account := self.find(domain, chain_job):
            return account
        raise NotFound(f"no account for job {chain_job} of contract {domain.contract}")

    def dealings(self, signer: Address) -> Dealings:
        return self._pages.dealings.get(signer, Dealings())

    def unpaid(self, signer: Address) -> int:
        """Returns how many gradients this requester owes: accepted without a due voucher, plus its grievances."""
        owed = sum(account.owed for account in self.accounts if account.signer == signer)
        return owed + len(self.dealings(signer).grievances)

    def record_offer(self, account: JobAccount) -> None:
        """Counts a taken offer and opens or updates its account.

        A new account is written to disk at once, before anything is computed for it. A change of the offer count alone
        is not written.
        """
        unchanged = self._pages is self._kept
        existing = self.find(account.domain, account.chain_job) or account
        renewed = existing.model_copy(
            update={"may_wait": account.may_wait, "price": account.price, "signer": account.signer, "closed": False}
        )
        known = self.dealings(account.signer)
        self._replace_account(renewed, account.signer, known.model_copy(update={"offers": known.offers + 1}))
        if existing is account:
            self.save()
        elif unchanged and renewed == existing:
            self._kept = self._pages

    def open_account(self, account: JobAccount) -> None:
        """Opens the account without an offer, or the job's earlier one again."""
        existing = self.find(account.domain, account.chain_job) or account
        self._replace_account(existing.model_copy(update={"closed": False}))

    def record_final_verdict(self, account: JobAccount, replica: ReplicaId, units: Units, accepted: bool) -> None:
        """Counts a final verdict once, however often it arrives; `units` is the promised pay."""
        if replica in account.counted:
            return
        changed = account.model_copy(
            update={
                "earned": account.earned + units,
                "accepted": account.accepted + accepted,
                "rejected": account.rejected + (not accepted),
                "counted": (*account.counted, replica)[-REMEMBERED:],
            }
        )
        known = self.dealings(account.signer)
        update = {"accepted": known.accepted + accepted, "rejected": known.rejected + (not accepted)}
        self._replace_account(changed, account.signer, known.model_copy(update=update))

    def record_vindication(self, account: JobAccount, units: Units) -> None:
        """Corrects a counted rejection that an audit proved wrong: `units` are now promised."""
        update = {"earned": account.earned + units, "accepted": account.accepted + 1, "rejected": account.rejected - 1}
        known = self.dealings(account.signer)
        counts = {"accepted": known.accepted + 1, "rejected": known.rejected - 1}
        self._replace_account(account.model_copy(update=update), account.signer, known.model_copy(update=counts))

    def take(self, account: JobAccount, voucher: Voucher, signature: bytes, open_units: Units) -> None:
        """Stores a checked voucher, also of an account that was closed.

        Pay beyond verdicts and `open_units` in flight was earned before this file existed.
        """
        if voucher.cumulative <= account.vouchered:
            return
        before = max(0, voucher.cumulative - account.earned - open_units)
        update = {"vouchered": voucher.cumulative, "signature": signature, "earned": account.earned + before}
        update |= {"closed": False}
        self._replace_account(account.model_copy(update=update))

    def paid_out(
        self, account: JobAccount, cumulative: Units, closed: bool, burnt: Units = NO_UNITS, lost: Units = NO_UNITS
    ) -> None:
        """Records that the chain has paid out, or burnt, up to `cumulative`, and that `lost` died with its claim."""
        sums = {
            "redeemed": max(account.redeemed, cumulative),
            "burnt": max(account.burnt, burnt),
            "lost": max(account.lost, lost),
            "closed_at": account.closed_at if account.closed or not closed else time.time(),
        }
        self._replace_account(account.model_copy(update={**sums, "closed": closed}))
        self.save()

    def reopen(self, account: JobAccount, redeemed: Units) -> None:
        """Opens an account again of which the chain has paid out no more than `redeemed`."""
        self._replace_account(account.model_copy(update={"closed": False, "redeemed": redeemed}))
        self.save()

    def record_grievance(self, signer: Address, replica: str) -> None:
        """Records that the requester broke a rule at this worker's expense."""
        known = self.dealings(signer)
        self._replace_account(None, signer, known.model_copy(update={"grievances": (*known.grievances, replica[:500])}))
        self.save()

    def grievances(self) -> list[tuple[Address, str]]:
        """Returns (signer, breach) pairs over all requesters."""
        return [(signer, line) for signer, known in self._pages.dealings.items() for line in known.grievances]

    def save(self) -> None:
        """Writes the changes to disk, synced."""
        if self._pages is not self._kept:
            durable.write_file_atomically(self._path, self._pages.model_dump_json(indent=1).encode())
            self._kept = self._pages

    def _replace_account(
        self, account: JobAccount | None, signer: Address | None = None, dealings: Dealings | None = None
    ) -> None:
        accounts = self.accounts
        if account is not None:
            accounts = (
                *(a for a in accounts if (a.domain, a.chain_job) != (account.domain, account.chain_job)),
                account,
            )
        known = self._pages.dealings
        if signer is not None and dealings is not None:
            known = {**known, signer: dealings}
        self._pages = AccountsFile(wallet=self.wallet, accounts=accounts, dealings=known)


def convert_to_amount(units: Units, account: JobAccount) -> Amount:
    """Converts units of the account's job to the token's smallest unit."""
    return Amount(units * account.unit)


BOOK: Final = "book.json"


def open_account_store(folder: Path, own: Address) -> AccountStore:
    """Returns the folder's accounts, which name the wallet `own` from their next writing on.

    Raises Conflict if they are another wallet's.
    """
    store = AccountStore(folder / BOOK)
    for account in store.accounts if store.wallet is None else ():
        if account.signature is None:
            continue
        try:
            digest = digest_struct(account.domain, account.voucher(own))
            own_voucher = recover_signer(digest, account.signature) == account.signer
        except SignatureRefused:
            own_voucher = False
        if not own_voucher:
            raise Conflict(
                f"the vouchers in {folder / BOOK} are not made out to {own}, whose key is there",
                _describe_key_remedy(folder),
            )
    if store.wallet not in (None, own):
        raise Conflict(
            f"{folder / BOOK} has the earnings of {store.wallet}, and the key there is that of {own}",
            _describe_key_remedy(folder),
        )
    store.belongs_to(own)
    return store


def check_a_key_may_be_made(folder: Path) -> None:
    """Raises NotFound where a key is missing and the folder has the accounts of one: that one must come back."""
    store = AccountStore(folder / BOOK)
    if wallet.find_key_file(folder) is None and (store.wallet is not None or store.accounts):
        owner = f"of {store.wallet}" if store.wallet else "of the wallet that earned what is listed there"
        raise NotFound(f"the key {owner} is gone from {folder}", _describe_key_remedy(folder))


def _describe_key_remedy(folder: Path) -> str:
    return f"put the right key back from its backup as {folder / wallet.PLAIN}, or take another folder with --data"
