"""The worker's book on disk: what it earned, the newest voucher of every job, and how each requester dealt with it.

`earned` grows by verdicts, `vouchered` by vouchers; the difference is unpaid. What one answer of the market brings is
synced to disk at once, by `keep`, before the market is told that it was heard and before the next task is taken.
"""

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from gradmarket.market.errors import NotFound
from gradmarket.market.fields import AddressField, AmountField, HashField, SignatureField
from gradmarket.market.messages import Voucher
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Amount, JobId, ReplicaId, Units
from gradmarket.market.wire import UnitsField
from gradmarket.worker import durable
from gradmarket.worker.policy import unpaid_gradients

REMEMBERED: Final = 256
"""Replicas kept by name so that a verdict that is told twice counts once; far more than are ever in flight."""


class Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class JobAccount(Stored):
    """One job's money, in units. `price` is the last offer's."""

    chain_id: int
    contract: AddressField
    instance: HashField
    chain_job: int
    job: JobId
    signer: AddressField
    unit: AmountField
    price: UnitsField = Units(0)
    earned: UnitsField = Units(0)
    vouchered: UnitsField = Units(0)
    signature: SignatureField | None = None
    redeemed: UnitsField = Units(0)
    """The cumulative sum up to which the chain has paid out."""
    closed: bool = False
    """Redeemed and released: nothing is left to do."""
    accepted: int = 0
    rejected: int = 0
    counted: tuple[ReplicaId, ...] = ()

    @property
    def domain(self) -> Domain:
        return Domain(self.chain_id, self.contract, self.instance)

    @property
    def redeemable(self) -> Units:
        """What the newest voucher adds to what was paid out."""
        return Units(max(0, self.vouchered - self.redeemed))

    @property
    def unpaid(self) -> int:
        """Gradients that were accepted and not vouchered for."""
        return unpaid_gradients(self.earned, self.vouchered, self.price)

    def voucher(self, worker: Address) -> Voucher:
        return Voucher(self.chain_job, worker, self.vouchered)


class Dealings(Stored):
    """How one requester's signer behaved, whatever the job. A grievance counts as a gradient lost."""

    offers: int = 0
    accepted: int = 0
    rejected: int = 0
    grievances: tuple[str, ...] = ()


class AccountsFile(Stored):
    accounts: tuple[JobAccount, ...] = ()
    dealings: dict[AddressField, Dealings] = {}


class AccountStore:
    """The pages as they are, and on disk as of the last `keep`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_bytes() if path.is_file() else None
        self._pages = AccountsFile.model_validate_json(text) if text else AccountsFile()
        self._kept = self._pages

    @property
    def accounts(self) -> tuple[JobAccount, ...]:
        return self._pages.accounts

    def find(self, domain: Domain, chain_job: int) -> JobAccount | None:
        of_job = (a for a in self.accounts if a.instance == domain.instance and a.chain_job == chain_job)
        return next((account for account in of_job if account.domain == domain), None)

    def account(self, domain: Domain, chain_job: int) -> JobAccount:
        """Raises NotFound where nothing was ever taken from the job."""
        if account := self.find(domain, chain_job):
            return account
        raise NotFound(f"no account for job {chain_job} of contract {domain.contract}")

    def dealings(self, signer: Address) -> Dealings:
        return self._pages.dealings.get(signer, Dealings())

    def unpaid(self, signer: Address) -> int:
        """Gradients that this requester owes: promised and not vouchered for, or taken against the rules."""
        owed = sum(account.unpaid for account in self.accounts if account.signer == signer)
        return owed + len(self.dealings(signer).grievances)

    def offered(self, account: JobAccount) -> None:
        """An offer is taken: opens its account, on disk before anything is computed for it, or renews price and signer.

        The count of offers alone is worth no write.
        """
        unchanged = self._pages is self._kept
        found = self.find(account.domain, account.chain_job) or account
        renewed = found.model_copy(update={"price": account.price, "signer": account.signer, "closed": False})
        known = self.dealings(account.signer)
        self._write(renewed, account.signer, known.model_copy(update={"offers": known.offers + 1}))
        if found is account:
            self.keep()
        elif unchanged and renewed == found:
            self._kept = self._pages

    def judged(self, account: JobAccount, replica: ReplicaId, units: Units, accepted: bool) -> None:
        """Counts a final verdict, once however often it is told; `units` is what it promises."""
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
        self._write(changed, account.signer, known.model_copy(update=update))

    def vindicated(self, account: JobAccount, units: Units) -> None:
        """A rejection that was counted turned out to be wrong, and `units` are promised."""
        update = {"earned": account.earned + units, "accepted": account.accepted + 1, "rejected": account.rejected - 1}
        known = self.dealings(account.signer)
        counts = {"accepted": known.accepted + 1, "rejected": known.rejected - 1}
        self._write(account.model_copy(update=update), account.signer, known.model_copy(update=counts))

    def take(self, account: JobAccount, voucher: Voucher, signature: bytes, open_units: Units) -> None:
        """Keeps a checked voucher. What neither verdicts nor `open_units` in flight explain precedes this book."""
        if voucher.cumulative <= account.vouchered:
            return
        before = max(0, voucher.cumulative - account.earned - open_units)
        update = {"vouchered": voucher.cumulative, "signature": signature, "earned": account.earned + before}
        self._write(account.model_copy(update=update))

    def paid_out(self, account: JobAccount, cumulative: Units, closed: bool) -> None:
        """The chain has paid up to `cumulative`."""
        redeemed = max(account.redeemed, cumulative)
        self._write(account.model_copy(update={"redeemed": redeemed, "closed": closed}))
        self.keep()

    def aggrieved(self, signer: Address, what: str) -> None:
        """The requester broke a rule at this worker's cost."""
        known = self.dealings(signer)
        self._write(None, signer, known.model_copy(update={"grievances": (*known.grievances, what[:500])}))
        self.keep()

    def grievances(self) -> list[tuple[Address, str]]:
        """Signer and breach, of every requester."""
        return [(signer, line) for signer, known in self._pages.dealings.items() for line in known.grievances]

    def keep(self) -> None:
        """Brings what changed to the disk, synced."""
        if self._pages is not self._kept:
            durable.write(self._path, self._pages.model_dump_json(indent=1).encode())
            self._kept = self._pages

    def _write(
        self, account: JobAccount | None, signer: Address | None = None, dealings: Dealings | None = None
    ) -> None:
        accounts = self.accounts
        if account is not None:
            accounts = (*(a for a in accounts if not _same(a, account)), account)
        known = self._pages.dealings
        if signer is not None and dealings is not None:
            known = {**known, signer: dealings}
        self._pages = AccountsFile(accounts=accounts, dealings=known)


def _same(one: JobAccount, other: JobAccount) -> bool:
    return one.domain == other.domain and one.chain_job == other.chain_job


def value(units: Units, account: JobAccount) -> Amount:
    """Units of the account's job in the token's smallest unit."""
    return Amount(units * account.unit)
