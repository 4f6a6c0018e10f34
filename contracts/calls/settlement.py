"""Calls that settle batches, each under the job's next batch number, and redeem vouchers (ISettlement, IVouchers)."""

from collections.abc import Sequence

from contracts.calls.encoding import Call, to_market
from contracts.packing import PackedGroup, pack_groups, pack_sums
from gradmarket.market.messages import Payout, Voucher
from gradmarket.market.terms import Address, Hash


def settle_packed(market: Address, job: int, batch: int, groups: Sequence[PackedGroup]) -> Call:
    """Settles a batch with every digest on-chain, which proves each of them for ever."""
    return to_market(market, "settlePacked", job, batch, pack_groups(groups))


def settle_rooted(market: Address, job: int, batch: int, root: Hash, groups: Sequence[PackedGroup]) -> Call:
    """Settles a batch with only the workers' sums and `root` on-chain; to prove a record takes the published groups."""
    return to_market(market, "settleRooted", job, batch, root, pack_sums(groups))


def redeem(market: Address, voucher: Voucher, signature: bytes) -> Call:
    """Pays the voucher's worker; sent by anyone."""
    return to_market(market, "redeem", voucher.job, voucher.worker, voucher.cumulative, signature)


def redeem_batch(market: Address, vouchers: Sequence[tuple[Voucher, bytes]]) -> Call:
    """Redeems many vouchers, of any jobs and workers; skips invalid ones."""
    rows = [(voucher.job, voucher.worker, voucher.cumulative, signature) for voucher, signature in vouchers]
    return to_market(market, "redeemBatch", rows)


def collect(market: Address, job: int, worker: Address) -> Call:
    """Pays the sender's credit, from batches or from vouchers that exceeded an earlier reservation."""
    return to_market(market, "collect", job, worker)


def set_payout(market: Address, payout: Address) -> Call:
    return to_market(market, "setPayout", payout)


def set_payout_for(market: Address, message: Payout, signature: bytes) -> Call:
    """Sets a worker's payout address by its signature; sent by anyone."""
    return to_market(market, "setPayoutFor", message.worker, message.payout, message.nonce, signature)
