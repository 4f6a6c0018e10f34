"""Turns vouchers into tokens: when the value exceeds the gas, in trouble, and before claims end.

Where the token refuses to pay, because it is paused or the payout address is on a list, the voucher becomes a credit in
the contract instead: a voucher dies when claims end, and a credit can be collected for ever. Also redeems when a job
ends and when the worker leaves. A job's account is closed when everything vouchered is paid out and the rest of the
reservation is released; earned pay that waits for its voucher stays reserved until claims end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from eth_keys.datatypes import PrivateKey

from contracts import claims, events
from contracts.gas_price import describe_gas_wait
from contracts.ledger import AccountOnChain, Ledger
from contracts.local import fund_gas
from contracts.rpc import LOCAL_CHAIN_IDS
from contracts.transactions import gas_price, require_receipt
from gradmarket.market.errors import Refused
from gradmarket.market.money import TokenUnit
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount, Units
from gradmarket.network.chain_errors import ChainError, ContractRefused, NodeRefused
from worker.journal import Journal
from worker.money.account_store import AccountStore, JobAccount, convert_to_amount
from worker.money.chain_view import ChainView

DROPPED_WITHIN_S: Final = 7 * 86_400.0
"""Seconds after its end within which a start of the worker, or of its wallet's command, finds a dropped payment."""
LOCAL_GAS_WEI: Final = 10**18
LOW_GAS_WEI: Final = 10**16
OWN_REFUSALS: Final = frozenset({"NoSuchJob", "TooLate", "BadSignature"})
"""Errors of `redeem` that the contract raises itself; any other comes from the token."""


def get_gas(ledger: Ledger, address: Address) -> None:
    """Funds a worker that is short of gas money, on a local chain only."""
    if ledger.deployment.chain_id in LOCAL_CHAIN_IDS and ledger.gas_money(address) < LOW_GAS_WEI:
        fund_gas(ledger.web3, address, LOCAL_GAS_WEI)


@dataclass(frozen=True)
class GasCeiling:
    """The most Wei that the owner pays for a unit of gas, until claims end in less than `urgent_s` seconds."""

    most: int
    urgent_s: float


class Redeemer:
    """Sends the worker's transactions to the contract; a failure is logged and retried later, nothing is lost.

    `worker`: the owner of the money, where `key` is another's. `payout` receives redeemed money from any sender's
    transaction; None keeps the contract's address. Raises Refused for the contract itself, which takes no payout.
    """

    def __init__(
        self,
        chain_view: ChainView,
        key: PrivateKey,
        account_store: AccountStore,
        journal: Journal,
        money: TokenUnit,
        payout: Address | None,
        worker: Address | None = None,
        ceiling: GasCeiling | None = None,
    ) -> None:
        if payout == chain_view.ledger.deployment.contract:
            raise Refused(f"the contract pays nothing to itself, {payout}", "name another payout address, or none")
        self._chain_view = chain_view
        self._key = key
        self._worker = worker or address_of(key)
        self._account_store = account_store
        self._journal = journal
        self._money = money
        self._payout = payout
        self._ceiling = ceiling
        self._domain = chain_view.ledger.domain()

    @property
    def address(self) -> Address:
        return self._worker

    def accounts(self) -> list[JobAccount]:
        """Returns the open accounts of this chain and contract."""
        return [
            account for account in self._account_store.accounts if account.domain == self._domain and not account.closed
        ]

    def reopen_dropped_accounts(self, within_s: float) -> None:
        """Opens accounts again that were closed in these last seconds and that the chain has no longer paid in full.

        A re-org drops a redemption, and no node need mine it again; the voucher is good until claims end. Raises
        ChainError.
        """
        for account in self._account_store.accounts:
            if account.domain != self._domain or not account.is_closed_within(within_s):
                continue
            view, paid = self._chain_view, self._chain_view.ledger.account(account.chain_job, self.address).withdrawn
            if paid < account.redeemed and view.now() <= view.claim_until(account.chain_job):
                amount = self._money.text(convert_to_amount(Units(account.redeemed - paid), account))
                text = f"The chain dropped a payment of {amount} of {account.job}: it is redeemed again."
                self._journal.report("payment_dropped", text, job=account.job)
                self._account_store.reopen(account, paid)

    def get_gas(self) -> None:
        """Funds the sender if it is short of gas money, on a local chain only."""
        get_gas(self._chain_view.ledger, address_of(self._key))

    def name_payout(self, account: JobAccount) -> None:
        """Registers the payout address with the contract, once; this costs gas. Raises ChainError."""
        ledger, payout = self._chain_view.ledger, self._payout
        if payout is not None and self._describe_gas_wait(account):
            return
        if payout is not None and ledger.payout_of(self.address) != payout:
            self.get_gas()
            require_receipt(claims.set_payout(ledger, self._key, payout))
        self._payout = None

    def due(self, account: JobAccount, at: Amount | None, before_s: float) -> bool:
        """Returns whether to redeem now: it is worth at least `at`, or claims end in less than `before_s` seconds.

        The chain's time decides, not this machine's clock.
        """
        if account.redeemable == 0:
            return False
        if at is not None and convert_to_amount(account.redeemable, account) >= at:
            return True
        return self._chain_view.claim_until(account.chain_job) - self._chain_view.now() < before_s

    def redeem(self, account: JobAccount) -> bool:
        """Redeems the newest voucher and collects the credits of batches beyond it; returns False if that failed.

        After claims end it closes the account.
        """
        return self._try_redemption(account, lambda: self._redeem_and_collect(account))

    def close(self, account: JobAccount) -> bool:
        """Redeems, releases the rest of the reservation, and closes the account; returns False if that failed."""
        return self._try_redemption(account, lambda: self._release_and_close(account))

    def _redeem_and_collect(self, account: JobAccount) -> None:
        ledger, job = self._chain_view.ledger, account.chain_job
        onchain = ledger.account(job, self.address)
        if account.vouchered or onchain.unpaid:
            self.name_payout(account)
        if account.signature is not None and account.vouchered > max(onchain.vouchered, onchain.withdrawn):
            self.get_gas()
            try:
                self._send_voucher(account, account.signature)
            except ContractRefused as refused:
                if refused.name != "TooLate":
                    raise
        self._collect(account)

    def _collect(self, account: JobAccount) -> None:
        ledger, job = self._chain_view.ledger, account.chain_job
        onchain = ledger.account(job, self.address)
        if onchain.unpaid and ledger.due(job, self.address):
            self.get_gas()
            require_receipt(claims.collect(ledger, self._key, job, self.address))
            onchain = ledger.account(job, self.address)
        over = ledger.next_time() > ledger.job(job).claim_until
        self._paid_out(account, onchain, over)
        if onchain.unpaid:
            self._describe_lock(account, onchain)

    def _describe_lock(self, account: JobAccount, onchain: AccountOnChain) -> None:
        end = onchain.credited_at + self._chain_view.ledger.job(account.chain_job).vest_window
        accused = self._chain_view.now() > end
        until = "its validators rule" if accused else f"{datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M} UTC"
        amount = self._money.text(convert_to_amount(onchain.unpaid, account))
        text = f"{amount} of {account.job} is locked until {until}: its last pay vests, and is collected then."
        self._journal.once("pay_locked", text, job=account.job)

    def _send_voucher(self, account: JobAccount, signature: bytes) -> None:
        """Redeems the voucher; where the token refuses to pay, makes the contract credit it, for a later collection."""
        ledger, voucher = self._chain_view.ledger, account.voucher(self.address)
        try:
            require_receipt(claims.redeem(ledger, self._key, voucher, signature))
        except (ContractRefused, NodeRefused) as refused:
            if isinstance(refused, ContractRefused) and refused.name in OWN_REFUSALS:
                raise
            require_receipt(claims.redeem_batch(ledger, self._key, [(voucher, signature)]))
            text = (
                f"The token refuses to pay {account.job} ({refused}). The contract has credited the voucher, so that "
                "nothing is lost when claims end; it is collected once the token pays, or to another payout address."
            )
            self._journal.once("credited", text, job=account.job)

    def _paid_out(self, account: JobAccount, onchain: AccountOnChain, over: bool) -> None:
        """Records payment and, where claims are `over`, the loss of what was not credited in time: credits are paid for
        ever, and the account is closed once they are."""
        withdrawn, burnt = onchain.withdrawn, account.burnt
        if withdrawn > account.redeemed and self._chain_view.opened(account.chain_job).vest_window:
            burnt = events.sum_burnt(self._chain_view.ledger, account.chain_job, self.address)
        paid = withdrawn - burnt - account.received
        if paid > 0:
            amount = convert_to_amount(Units(paid), account)
            text = f"Redeemed {self._money.text(amount)} of {account.job}."
            self._journal.report("redeemed", text, job=account.job, amount=str(amount))
        lost = Units(max(0, account.vouchered - onchain.credited)) if over else Units(0)
        if lost > account.lost:
            amount = convert_to_amount(lost, account)
            text = (
                f"{self._money.text(amount)} of {account.job} is lost: claims ended before its voucher was redeemed. "
                "Run the worker, or a watchtower, while claims last."
            )
            self._journal.report("voucher_lost", text, job=account.job, amount=str(amount))
        closed = over and not onchain.unpaid
        self._account_store.paid_out(self._reload_account(account), withdrawn, closed, burnt, lost)

    def _release_and_close(self, account: JobAccount) -> None:
        self._redeem_and_collect(account)
        ledger, job = self._chain_view.ledger, account.chain_job
        onchain, account = ledger.account(job, self.address), self._reload_account(account)
        claimable = self._chain_view.now() <= ledger.job(job).claim_until
        if claimable and onchain.reserved > max(onchain.credited, account.earned):
            self.get_gas()
            require_receipt(claims.release(ledger, self._key, job, account.earned))
            self._chain_view.forget(job)
        locked = onchain.unpaid > 0  # collected when its time has come
        awaits_voucher = claimable and account.earned > account.vouchered
        self._account_store.paid_out(account, onchain.withdrawn, closed=not locked and not awaits_voucher)

    def _reload_account(self, account: JobAccount) -> JobAccount:
        return self._account_store.account(account.domain, account.chain_job)

    def _try_redemption(self, account: JobAccount, action: Callable[[], None]) -> bool:
        try:
            if wait := self._describe_gas_wait(account):
                text = f"{account.job} {wait}. A voucher is redeemed before claims end; a credit can wait for ever."
                self._journal.once("redeem_waits", text, job=account.job)
                return False
            action()
        except ChainError as error:
            text = f"Could not redeem {account.job} now: {error}. The voucher is kept and tried again."
            self._journal.once("redeem_failed", text, job=account.job)
            return False
        return True

    def _describe_gas_wait(self, account: JobAccount) -> str:
        """Returns why nothing is sent for this account now; empty within the ceiling, or where claims end soon."""
        view, ceiling = self._chain_view, self._ceiling
        if ceiling is None or 0 <= view.claim_until(account.chain_job) - view.now() < ceiling.urgent_s:
            return ""
        price = gas_price(view.ledger.web3)
        dear = price.least > ceiling.most
        return describe_gas_wait(price, ceiling.most, "GRADMARKET_WORKER_MAX_FEE") if dear else ""
