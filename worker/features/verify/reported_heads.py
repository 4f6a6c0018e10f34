"""The heads of jobs' logs that this worker received, in its folder: they reveal another history shown later.

One file for each job of each chain, one JSON object per line, newest last. Two of its signed heads that no proof
connects are evidence for anybody (features.log.job_log.find_signed_fork).
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, ValidationError

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.market.features.log import job_log
from gradmarket.market.features.log.job_log import ConsistencyProof, LeafProof
from gradmarket.market.features.log.merkle import GrowingTree
from gradmarket.market.features.verify import Finding
from gradmarket.market.fields import DeferredModel
from gradmarket.market.messages import LogHead
from gradmarket.market.rules.proof import Fault, is_signed_by
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Hash, JobId
from gradmarket.market.wire.log_proofs import LeafHashes, LeafKind, PublishedHead, PublishedRestart
from worker import durable
from worker.protocol.client import MarketClient, build_job_path

COMPARED: Final = 64
"""The number of received heads that are compared with the newest, the newest of them; and of heads in batches as many,
drawn anew each time."""


CARRIED: Final = -1.0
"""In place of the time of receipt, for a head that a batch carries: its block has the time."""


class ReportedHead(DeferredModel):
    """A head that a market sent; `at` in Unix seconds."""

    model_config = ConfigDict(frozen=True)
    at: float
    market: str
    head: PublishedHead


def file_of(folder: Path, instance: Hash, chain_job: int) -> Path:
    return folder / "heads" / f"{instance.hex()}-{chain_job}.jsonl"


def load_reported_heads(path: Path) -> list[ReportedHead]:
    """Returns the heads in the order of their receipt; lines that a crash cut short are left out."""
    heads = list[ReportedHead]()
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            heads.append(ReportedHead.model_validate_json(line))
        except ValidationError:
            continue
    return heads


def store_reported_head(path: Path, head: ReportedHead) -> None:
    durable.append_line(path, head.model_dump_json().encode() + b"\n")


def store_leaves(path: Path, head: PublishedHead, leaves: Sequence[Hash]) -> None:
    """Stores the leaves that lead to a contradicted head: both heads and these convict their signer."""
    listed = LeafHashes(first=0, hashes=tuple(leaves))
    durable.write_file_atomically(
        path.with_name(f"{path.stem}-{head.root.hex()}.json"), listed.model_dump_json().encode()
    )


def list_past_restores(
    head: PublishedHead, leaves: Sequence[Hash], carried: Mapping[int, LogHead], now: float
) -> Iterator[PublishedRestart]:
    """Yields the restores that the head's leaves admit; none of a future time: it would excuse everything until then.

    `carried`: the heads of all batches.
    """
    past = [restart for restart in head.restarts if restart.at <= now + job_log.SKEW_S]
    if len(leaves) == head.size and GrowingTree(leaves).compute_root() == head.root:
        yield from job_log.list_restores(head.job, leaves, past, carried)


@dataclass
class HeadCheck:
    """Compares a market's present head with its earlier ones and those that batches carry.

    `fetch_carried`: reads the heads of all batches, to judge a restore; `restored` describes the admitted restores.
    """

    market: MarketClient
    job: JobId
    domain: Domain
    signer: Address
    path: Path
    fetch_carried: Callable[[], Mapping[int, LogHead]]
    fetch_times: Callable[[], Mapping[int, int]]
    """Returns when each of these batches was settled: the heads that it carries date from then."""
    clock: Callable[[], float]
    restored: list[str] = field(default_factory=list)

    def run(self, carried: Sequence[LogHead]) -> Iterator[Finding]:
        """Yields the findings, and stores the head. Raises MarketError where the market does not answer."""
        heads = load_reported_heads(self.path)
        shown = self.market.log(self.job)
        if shown is None:
            if heads:
                yield Finding(Fault.FORKED_LOG, detail=f"it told {heads[-1].head.size} leaves, and shows no log now")
            return
        if not is_signed_by(self.domain, shown.struct(), shown.signature, self.signer):
            yield Finding(Fault.UNSIGNED_HEAD, detail=f"root 0x{shown.root.hex()} over {shown.size} leaves")
            return
        before = {(one.head.size, one.head.root): (one.head.struct(), one.at) for one in heads[-COMPARED:]}
        drawn = random.SystemRandom().sample(carried, min(COMPARED, len(carried)))
        before |= {(head.size, head.root): (head, CARRIED) for head in drawn}
        forks = [(why, *one) for one in before.values() if (why := self._find_fork(one[0], shown))]
        leaves = list(self.market.leaves(self.job, shown.size)) if forks else []
        for why, old, at in forks:
            yield from self._judge_fork(why, old, at, shown, leaves)
        if not heads or heads[-1].head != shown:
            store_reported_head(self.path, ReportedHead(at=self.clock(), market=self.market.origin, head=shown))

    def find_restores(self, heads: Iterable[ReportedHead]) -> list[PublishedRestart]:
        """Returns the restores by which the log that is shown now admits the loss of each of these heads that it does
        not begin with; none where it has them all, or one is not admitted. Raises MarketError."""
        shown = self.market.log(self.job)
        if shown is None or not is_signed_by(self.domain, shown.struct(), shown.signature, self.signer):
            return []
        lost = [one for one in heads if self._find_fork(one.head.struct(), shown)]
        leaves = list(self.market.leaves(self.job, shown.size)) if lost else []
        admitted = [self._find_admission(leaves, one.head.struct(), one.at, shown) for one in lost]
        return [] if None in admitted else [one for one in admitted if one is not None]

    def _find_fork(self, old: LogHead, shown: PublishedHead) -> str:
        new = shown.struct()
        if old.size == new.size:
            return job_log.find_fork(old, new, ())
        small, large = sorted((old.size, new.size))
        proof = fetch_prefix_proof(self.market, self.job, small, large) if large == new.size else None
        return job_log.find_fork(old, new, None if proof is None else proof.path)

    def _judge_fork(
        self, why: str, old: LogHead, at: float, shown: PublishedHead, leaves: Sequence[Hash]
    ) -> Iterator[Finding]:
        admitted = self._find_admission(leaves, old, at, shown)
        if admitted is None:
            store_leaves(self.path, shown, leaves)
            yield Finding(Fault.FORKED_LOG, detail=why)
            return
        self.restored.append(
            f"its service was restored at Unix time {admitted.at}, as leaf {admitted.number} of its log admits: of the "
            f"{old.size} leaves that it told before, those from there on are lost"
        )

    def _find_admission(
        self, leaves: Sequence[Hash], old: LogHead, at: float, shown: PublishedHead
    ) -> PublishedRestart | None:
        """Returns the admission, if any."""
        now, at = self.clock(), self._find_batch_time(old) if at == CARRIED else at
        if not shown.restarts:
            return None
        carried = self.fetch_carried()
        past = list_past_restores(shown, leaves, carried, now)
        return job_log.find_admission(leaves, past, old, at, carried)

    def _find_batch_time(self, head: LogHead) -> float:
        """Returns when the first batch with this head was settled; without one, a time later than any restore."""
        times = self.fetch_times()
        heads = [
            times[number] for number, carried in self.fetch_carried().items() if carried == head and number in times
        ]
        return float(min(heads, default=2**62))


def fetch_prefix_proof(market: MarketClient, job: JobId, old: int, size: int) -> ConsistencyProof | None:
    """Returns the proof that the log of `old` leaves begins that of `size`; None where the market has none."""
    try:
        return market.find(
            ConsistencyProof, f"{build_job_path(job)}/log/consistency", params={"old": old, "size": size}
        )
    except ServiceProblem as problem:
        if problem.status >= 500:  # the market's own fault, and no answer
            raise
        return None


def fetch_leaf_proof(market: MarketClient, job: JobId, kind: LeafKind, about: str, size: int) -> LeafProof | None:
    """Returns the proof that the record is in the log of this size; None where the market has none."""
    return market.find(
        LeafProof, f"{build_job_path(job)}/log/leaves/{kind.value}", params={"about": about, "size": size}
    )
