"""From vouchers to tokens: redeem when it is worth the gas, in trouble, before claims end, at a job's end, at leaving.

A job's money is closed when everything vouchered is paid out and the rest of the reservation is released.
"""

from collections.abc import Callable
from typing import Final

from eth_keys.datatypes import PrivateKey

from gradmarket.contracts import claims
from gradmarket.contracts.errors import ChainError
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.local import fund_gas
from gradmarket.contracts.rpc import LOCAL_CHAIN_IDS
from gradmarket.contracts.transactions import mined
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount, Units
from gradmarket.worker.account_store import AccountStore, JobAccount, value
from gradmarket.worker.chain_view import ChainView
from gradmarket.worker.journal import Journal, Money

LOCAL_GAS_WEI: Final = 10**18
LOW_GAS_WEI: Final = 10**16


def get_gas(ledger: Ledger, address: Address) -> None:
    """On a local chain a worker without gas money gets some."""
    if ledger.deployment.chain_id in LOCAL_CHAIN_IDS and ledger.gas_money(address) < LOW_GAS_WEI:
        fund_gas(ledger.web3, address, LOCAL_GAS_WEI)


class Redeemer:
    """Talks to the contract with the worker's key; what fails is said and tried again later, never lost.

    `payout` is where redeemed money goes, whoever sends the redeem; None leaves what the contract knows.
    """

    def __init__(
        self,
        chain_view: ChainView,
        key: PrivateKey,
        account_store: AccountStore,
        journal: Journal,
        money: Money,
        payout: Address | None,
    ) -> None:
        self._chain_view = chain_view
        self._key = key
        self._account_store = account_store
        self._journal = journal
        self._money = money
        self._payout = payout
        self._domain = chain_view.ledger.domain()

    @property
    def address(self) -> Address:
        return address_of(self._key)

    def accounts(self) -> list[JobAccount]:
        """Those of this chain and contract that are not closed."""
        return [
            account for account in self._account_store.accounts if account.domain == self._domain and not account.closed
        ]

    def get_gas(self) -> None:
        """On a local chain a worker without gas money gets some, and nothing else."""
        get_gas(self._chain_view.ledger, self.address)

    def name_payout(self) -> None:
        """Registers the payout address with the contract, once; for this gas is paid. Raises ChainError."""
        ledger, payout = self._chain_view.ledger, self._payout
        if payout is not None and ledger.payout_of(self.address) != payout:
            self.get_gas()
            mined(claims.set_payout(ledger, self._key, payout))
        self._payout = None

    def due(self, account: JobAccount, at: Amount | None, before_s: float, now: float) -> bool:
        """Whether to redeem now: worth `at`, or less than `before_s` seconds until the job's claims end."""
        if account.redeemable == 0:
            return False
        if at is not None and value(account.redeemable, account) >= at:
            return True
        return self._chain_view.claim_until(account.chain_job) - now < before_s

    def redeem(self, account: JobAccount) -> bool:
        """Presents the newest voucher, and takes what batches credited beyond it; False where it did not work now."""
        return self._try(account, lambda: self._redeem(account))

    def close(self, account: JobAccount) -> bool:
        """Redeems, gives the rest of the reservation back, and closes the account."""
        return self._try(account, lambda: self._close(account))

    def _redeem(self, account: JobAccount) -> None:
        ledger, job = self._chain_view.ledger, account.chain_job
        found = ledger.account(job, self.address)
        if account.vouchered or found.due:
            self.name_payout()
        if account.signature is not None and account.vouchered > max(found.vouchered, found.withdrawn):
            self.get_gas()
            mined(claims.redeem(ledger, self._key, account.voucher(self.address), account.signature))
            found = ledger.account(job, self.address)
        if found.due:
            self.get_gas()
            mined(claims.collect(ledger, self._key, job, self.address))
            found = ledger.account(job, self.address)
        self._paid_out(account, found.withdrawn)

    def _paid_out(self, account: JobAccount, withdrawn: Units) -> None:
        paid = withdrawn - account.redeemed
        if paid > 0:
            text = f"Redeemed {self._money.text(value(Units(paid), account))} of {account.job}."
            self._journal.say("redeemed", text, job=account.job, units=paid)
        self._account_store.paid_out(self._current(account), withdrawn, closed=False)

    def _close(self, account: JobAccount) -> None:
        self._redeem(account)
        ledger, job = self._chain_view.ledger, account.chain_job
        found = ledger.account(job, self.address)
        if found.reserved > found.credited and ledger.block().time <= ledger.job(job).claim_until:
            self.get_gas()
            mined(claims.release(ledger, self._key, job, Units(0)))
            self._chain_view.forget(job)
        self._account_store.paid_out(self._current(account), found.withdrawn, closed=True)

    def _current(self, account: JobAccount) -> JobAccount:
        return self._account_store.account(account.domain, account.chain_job)

    def _try(self, account: JobAccount, action: Callable[[], None]) -> bool:
        try:
            action()
        except ChainError as error:
            text = f"Could not redeem {account.job} now: {error}. The voucher is kept and tried again."
            self._journal.once("redeem_failed", text, job=account.job)
            return False
        return True
