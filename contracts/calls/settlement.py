"""Calls that settle batches, each under the job's next batch number (ISettlement)."""

from collections.abc import Sequence

from contracts.calls.encoding import Call, to_market
from contracts.packing import PackedGroup, pack_groups, pack_sums
from gradmarket.market.terms import Address, Hash


def settle_packed(market: Address, job: int, batch: int, groups: Sequence[PackedGroup]) -> Call:
    """Settles a batch with every digest on-chain, so that `Ledger.was_accepted` can prove each of them for ever."""
    return to_market(market, "settlePacked", job, batch, pack_groups(groups))


def settle_rooted(market: Address, job: int, batch: int, root: Hash, groups: Sequence[PackedGroup]) -> Call:
    """Settles a batch with only the workers' sums and `root` on-chain; to prove a record takes the published groups."""
    return to_market(market, "settleRooted", job, batch, root, pack_sums(groups))
