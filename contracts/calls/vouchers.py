"""Vouchers, what is due, and where it goes (IVouchers)."""

from collections.abc import Sequence

from gradmarket.contracts.calls.encoding import Call, to_market
from gradmarket.market.messages import Payout, Voucher
from gradmarket.market.terms import Address


def redeem(market: Address, voucher: Voucher, signature: bytes) -> Call:
    """Pays the voucher's worker, whoever sends it."""
    return to_market(market, "redeem", voucher.job, voucher.worker, voucher.cumulative, signature)


def redeem_batch(market: Address, vouchers: Sequence[tuple[Voucher, bytes]]) -> Call:
    """Many vouchers, of any jobs and workers; a bad one is skipped."""
    rows = [(voucher.job, voucher.worker, voucher.cumulative, signature) for voucher, signature in vouchers]
    return to_market(market, "redeemBatch", rows)


def collect(market: Address, job: int, worker: Address) -> Call:
    """Pays what is credited already: batches, and vouchers beyond an earlier reservation."""
    return to_market(market, "collect", job, worker)


def set_payout(market: Address, payout: Address) -> Call:
    return to_market(market, "setPayout", payout)


def set_payout_for(market: Address, message: Payout, signature: bytes) -> Call:
    """The same by the worker's signature, whoever sends it."""
    return to_market(market, "setPayoutFor", message.worker, message.payout, message.nonce, signature)


def add_signer(market: Address, job: int, signer: Address) -> Call:
    """A further key whose vouchers count; none is ever removed."""
    return to_market(market, "addSigner", job, signer)
