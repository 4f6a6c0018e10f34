"""Batches, under the job's next number (ISettlement)."""

from collections.abc import Sequence

from gradmarket.contracts.calls.encoding import Call, to_market
from gradmarket.contracts.packing import PackedGroup, pack_groups, pack_sums
from gradmarket.market.terms import Address, Hash


def settle_packed(market: Address, job: int, batch: int, groups: Sequence[PackedGroup]) -> Call:
    """Every digest goes on-chain: `Ledger.was_accepted` answers for each, for ever."""
    return to_market(market, "settlePacked", job, batch, pack_groups(groups))


def settle_rooted(market: Address, job: int, batch: int, root: Hash, groups: Sequence[PackedGroup]) -> Call:
    """Only the workers' sums and `root` go on-chain; who wants to prove a record needs the published groups."""
    return to_market(market, "settleRooted", job, batch, root, pack_sums(groups))
