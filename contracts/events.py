"""Reads the contract's events. Money is in the job's units."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from hexbytes import HexBytes
from web3 import Web3
from web3.contract.contract import ContractEvent
from web3.exceptions import Web3Exception
from web3.logs import DISCARD
from web3.types import FilterParams, LogReceipt

from contracts.artifact import load_artifact
from contracts.event_types import Accused, Amounted, Ended, JobOpened, Reserved, Skipped, VestBurn
from contracts.ledger import Ledger
from contracts.packing import PackedGroup
from contracts.rpc import LOG_SPAN, MALFORMED, decode_refusal, node_errors
from contracts.transaction_types import Receipt
from gradmarket.market.terms import Address, Amount, Hash, Units
from gradmarket.network.chain_errors import ChainError, NodeRefused

Log = TypeVar("Log")
OF_AN_ACCOUNT: Final = ("Paid", "Released", "Joined", "Left", "Freed", "Accused", "Slashed")
"""Events that name a job and one of its workers, and change what either may withdraw."""
LEAST_KEPT: Final = 500
"""Least blocks in one request that a connection remembers as answered: below, a refusal may be due to one block."""
NOBODY: Final = to_checksum_address("0x" + "00" * 20)


def in_spans(
    web3: Web3,
    ask: Callable[[int, int], Iterable[Log]],
    first: int,
    last: int,
    skip: Callable[[int], bool] = lambda _block: False,
) -> Iterator[Log]:
    """Yields the result of `ask` for each span of blocks from `first` to `last`. Raises as `node_errors`.

    A span that the node refuses is halved, and doubled again after each answer: public nodes answer from 500 to 10,000
    blocks, or a number of logs, and each refuses more in words of its own. The connection remembers a width that was
    refused, but none below LEAST_KEPT: a node that lacks the newest block, or whose block is full, refuses any.

    Where one block alone is refused, `skip` decides whether to go on without it.
    """
    node: Any = web3.provider
    at, span = first, _find_log_span(node)
    while at <= last:
        width = min(span, last - at + 1)
        try:
            with node_errors():
                records = ask(at, at + width - 1)
        except NodeRefused:
            if width == 1 and not skip(at):
                raise
            if width > LEAST_KEPT:
                node.log_span = max(LEAST_KEPT, width // 2)
            at, span = (at + 1, 1) if width == 1 else (at, width // 2)
            continue
        yield from records
        at, span = at + width, min(2 * width, _find_log_span(node))


def _find_log_span(node: Any) -> int:
    """Returns how many blocks the node answers in one request, as far as the connection knows."""
    return int(getattr(node, "log_span", LOG_SPAN))


def fetch_logs(
    web3: Web3, asked: FilterParams, first: int, last: int, skip: Callable[[int], bool] = lambda _block: False
) -> Iterator[LogReceipt]:
    """Yields the logs of these blocks that `asked` describes by address and topics, in the chain's order."""
    return in_spans(
        web3, lambda at, to: web3.eth.get_logs({**asked, "fromBlock": at, "toBlock": to}), first, last, skip
    )


@node_errors()
def opened(ledger: Ledger, receipt: Receipt) -> list[JobOpened]:
    return [_build_job_opened(log) for log in _list_receipt_logs(ledger, "JobOpened", receipt)]


@node_errors()
def reserved(ledger: Ledger, receipt: Receipt) -> list[Reserved]:
    events = _list_event_arguments(ledger, "Reserved", receipt)
    return [Reserved(args["jobId"], args["worker"], args["added"], args["reserved"]) for args in events]


@node_errors()
def deposited(ledger: Ledger, receipt: Receipt) -> list[Amounted]:
    return [Amounted(args["jobId"], args["amount"]) for args in _list_event_arguments(ledger, "Deposited", receipt)]


@node_errors()
def refunded(ledger: Ledger, receipt: Receipt) -> list[Amounted]:
    return [Amounted(args["jobId"], args["amount"]) for args in _list_event_arguments(ledger, "Refunded", receipt)]


@node_errors()
def paid(ledger: Ledger, receipt: Receipt) -> list[Amounted]:
    return [
        Amounted(args["jobId"], args["amount"], args["worker"])
        for args in _list_event_arguments(ledger, "Paid", receipt)
    ]


@node_errors()
def skipped(ledger: Ledger, receipt: Receipt) -> list[Skipped]:
    vouchers = [
        Skipped(args["jobId"], args["worker"], args["index"], decode_refusal("0x" + args["reason"].hex()).name)
        for args in _list_event_arguments(ledger, "VoucherSkipped", receipt)
    ]
    releases = _list_event_arguments(ledger, "ReleaseSkipped", receipt)
    return [*vouchers, *(Skipped(args["jobId"], args["worker"], args["index"]) for args in releases)]


@node_errors()
def all_paid(ledger: Ledger, job: int) -> list[Amounted]:
    """Returns every payment of the job so far."""
    logs = _fetch_event_arguments(ledger, "Paid", {"jobId": job})
    return [Amounted(job, args["amount"], args["worker"]) for args in logs]


@node_errors()
def sum_burnt(ledger: Ledger, job: int, worker: Address) -> Units:
    """Returns the sum that rulings have burnt of the worker's locked pay in the job."""
    logs = _fetch_event_arguments(ledger, "VestBurnt", {"jobId": job, "worker": worker})
    return Units(sum(args["amount"] for args in logs))


@node_errors()
def vest_burns(ledger: Ledger, job: int, worker: Address) -> list[VestBurn]:
    """Returns the burns of the worker's locked pay in the job by rulings, the oldest first.

    The contract names the case in the event that follows the burn's. Raises ChainError where the node does not show it.
    """
    burns = list(_fetch_event_logs(ledger, "VestBurnt", {"jobId": job, "worker": worker}))
    if not burns:
        return []
    ruled = {
        (log["transactionHash"], log["logIndex"]): Hash(bytes(log["args"]["caseId"]))
        for log in _fetch_event_logs(ledger, "Slashed", {"jobId": job, "worker": worker})
    }
    accusations = {one.case: one.event for one in accused(ledger, worker)}
    cases = [ruled.get((log["transactionHash"], log["logIndex"] + 1)) for log in burns]
    if missing := [case for case in cases if case not in accusations]:
        raise ChainError(f"{len(missing)} burns of locked pay have no accusation and no ruling")
    return [
        VestBurn(case, accusations[case], Units(log["args"]["amount"]))
        for case, log in zip(cases, burns, strict=True)
        if case is not None
    ]


@node_errors()
def all_refunded(ledger: Ledger, job: int, first: int | None = None, last: int | None = None) -> Units:
    """Returns the sum of the job's refunds up to block `last`; `first` is a block before which there was none."""
    logs = _fetch_event_arguments(ledger, "Refunded", {"jobId": job}, first, last)
    return Units(sum(args["amount"] for args in logs))


@node_errors()
def accounts_touched(ledger: Ledger, first: int, last: int) -> set[tuple[int, Address]]:
    """Returns jobs and workers with a payment, a release or a change of the stake in these blocks."""
    events = {_find_event(ledger, name) for name in OF_AN_ACCOUNT}
    by_topic = {HexBytes(keccak(text=event.signature)): event for event in events}
    asked: FilterParams = {"address": ledger.market.address, "topics": [list(by_topic)]}
    records = (
        by_topic[log["topics"][0]].process_log(log)["args"] for log in fetch_logs(ledger.web3, asked, first, last)
    )
    return {(args["jobId"], args["worker"]) for args in records}


@node_errors()
def joined(ledger: Ledger, worker: Address) -> list[int]:
    """Returns every job that the worker ever joined with a stake."""
    return sorted({args["jobId"] for args in _fetch_event_arguments(ledger, "Joined", {"worker": worker})})


@node_errors()
def joined_workers(ledger: Ledger, job: int, least: Amount, first: int | None = None) -> set[Address]:
    """Returns every worker that joined the job with a stake of `least` or more; before block `first` none did."""
    logs = _fetch_event_arguments(ledger, "Joined", {"jobId": job}, first)
    return {args["worker"] for args in logs if args["atRisk"] >= least}


@node_errors()
def ended(ledger: Ledger, case: Hash) -> Ended | None:
    """Returns how the case ended; None if it has not."""
    for name in ("Slashed", "Acquitted", "Dismissed"):
        for log in _fetch_event_logs(ledger, name, {"caseId": case}):
            return Ended(name, log["blockNumber"])
    return None


@node_errors()
def accused(ledger: Ledger, worker: Address, first: int | None = None, last: int | None = None) -> list[Accused]:
    """Returns every accusation of the worker in these blocks (default: since the deployment), the oldest first."""
    logs = _fetch_event_arguments(ledger, "Accused", {"worker": worker}, first, last)
    return [
        Accused(Hash(bytes(args["caseId"])), args["jobId"], args["amount"], Hash(bytes(args["eventDigest"])))
        for args in logs
    ]


@node_errors()
def opened_job(ledger: Ledger, job: int) -> JobOpened:
    """Returns the terms that the job opened with; nobody can change them. Raises ChainError unless it did, once."""
    records = [_build_job_opened(log) for log in _fetch_event_logs(ledger, "JobOpened", {"jobId": job})]
    if len(records) != 1:
        raise ChainError(f"the contract opened job {job} {len(records)} times")
    return records[0]


@node_errors()
def beacon(ledger: Ledger, opened: JobOpened) -> Hash | None:
    """Returns the hash of the block after the one that opened the job, which was unknown when the terms were fixed.

    None where the chain has no such block yet.
    """
    return ledger.block_hash(opened.block + 1)


@node_errors()
def find_opened(ledger: Ledger, requester: Address, spec_digest: Hash) -> JobOpened | None:
    """Returns the newest job that `requester` opened for this specification, or None."""
    return next(iter(all_opened(ledger, requester, spec_digest)), None)


@node_errors()
def all_opened(ledger: Ledger, requester: Address, spec_digest: Hash) -> list[JobOpened]:
    """Returns every job that `requester` opened for this specification, the newest first."""
    jobs = [_build_job_opened(log) for log in _fetch_event_logs(ledger, "JobOpened", {"requester": requester})]
    return [job for job in reversed(jobs) if job.spec_digest == spec_digest]


def fetch_announced_jobs(web3: Web3, first: int, last: int) -> Iterator[JobOpened]:
    """Yields every JobOpened event of these blocks, of any contract: the caller must check the contract's code.

    Anybody may fill a block with such events until nodes refuse it: it is left out.
    """
    event = web3.eth.contract(abi=list(load_artifact("GradMarket").abi)).events.JobOpened()
    asked: FilterParams = {"topics": [HexBytes(keccak(text=event.signature))]}
    for log in fetch_logs(web3, asked, first, last, partial(_is_full, web3)):
        try:
            yield _build_job_opened(event.process_log(log))
        except (Web3Exception, *MALFORMED):
            continue  # another contract's event of the same name


def _is_full(web3: Web3, block: int) -> bool:
    """Returns whether a node that refuses the block's logs answers those of no contract; else it lacks the block."""
    try:
        with node_errors():
            web3.eth.get_logs({"address": NOBODY, "fromBlock": block, "toBlock": block})
    except NodeRefused:
        return False
    return True


@node_errors()
def jobs_touched(ledger: Ledger, first: int, last: int) -> set[int]:
    """Returns the jobs with a deposit or a refund in these blocks."""
    names = ("Deposited", "Refunded")
    return {args["jobId"] for name in names for args in _fetch_event_arguments(ledger, name, {}, first, last)}


@node_errors()
def settled_groups(ledger: Ledger, job: int, batch: int) -> list[PackedGroup]:
    """Returns a batch's credits according to the chain; an empty list if there is no such batch."""
    logs = _fetch_event_arguments(ledger, "GradientsAccepted", {"jobId": job, "batch": batch})
    return [PackedGroup(args["worker"], args["price"], _split_digests(args["digests"])) for args in logs]


@node_errors()
def all_settled_groups(ledger: Ledger, job: int, worker: Address | None = None) -> list[tuple[int, PackedGroup]]:
    """Returns (batch, group) for every group of the job's batches, or of one worker's, in the chain's order."""
    wanted = {"jobId": job} if worker is None else {"jobId": job, "worker": worker}
    logs = _fetch_event_arguments(ledger, "GradientsAccepted", wanted)
    return [
        (args["batch"], PackedGroup(args["worker"], args["price"], _split_digests(args["digests"]))) for args in logs
    ]


@node_errors()
def fetch_group_times(ledger: Ledger, job: int, worker: Address) -> dict[int, int]:
    """Returns the Unix time of the block of each of the job's batches that has a group of this worker."""
    logs = _fetch_event_logs(ledger, "GradientsAccepted", {"jobId": job, "worker": worker})
    blocks = {log["args"]["batch"]: log["blockNumber"] for log in logs}
    times = {number: int(ledger.web3.eth.get_block(number)["timestamp"]) for number in set(blocks.values())}
    return {batch: times[block] for batch, block in blocks.items()}


@node_errors()
def batches_crediting(ledger: Ledger, job: int, worker: Address) -> set[int]:
    """Returns the batches of the job with gradients of `worker`."""
    return {
        args["batch"] for args in _fetch_event_arguments(ledger, "GradientsAccepted", {"jobId": job, "worker": worker})
    }


def _build_job_opened(log: Any) -> JobOpened:
    args, terms = log["args"], log["args"]["params"]
    return JobOpened(
        args["jobId"], args["requester"], args["deposited"], Hash(bytes(terms["specDigest"])),
        terms["expiry"], terms["claimUntil"], terms["unit"], terms["voucherSigner"], terms["slashWindow"],
        terms["endpoint"], log["address"], log["blockNumber"],
        terms["vest"], terms["vestWindow"], Hash(bytes(terms["vestQuorum"])),
    )  # fmt: skip


def _split_digests(packed: bytes) -> tuple[Hash, ...]:
    return tuple(Hash(packed[at : at + 32]) for at in range(0, len(packed), 32))


def _list_event_arguments(ledger: Ledger, name: str, receipt: Receipt) -> Iterator[Any]:
    return (log["args"] for log in _list_receipt_logs(ledger, name, receipt))


def _list_receipt_logs(ledger: Ledger, name: str, receipt: Receipt) -> Iterator[Any]:
    for log in _find_event(ledger, name).process_receipt(receipt.raw, errors=DISCARD):
        if log["address"] == ledger.deployment.contract:
            yield log


def _fetch_event_arguments(
    ledger: Ledger, name: str, filters: dict[str, Any], first: int | None = None, last: int | None = None
) -> Iterator[Any]:
    """Yields the arguments of the events that `_logs` yields."""
    return (log["args"] for log in _fetch_event_logs(ledger, name, filters, first, last))


def _fetch_event_logs(
    ledger: Ledger, name: str, filters: dict[str, Any], first: int | None = None, last: int | None = None
) -> Iterator[Any]:
    """Yields all such events of these blocks (default: since the deployment), in the chain's order."""
    event = _find_event(ledger, name)
    start = ledger.deployment.block if first is None else first
    end = ledger.block().number if last is None else last
    return in_spans(ledger.web3, lambda at, to: event.get_logs(filters, from_block=at, to_block=to), start, end)


def _find_event(ledger: Ledger, name: str) -> ContractEvent:
    return ledger.event_contract.events[name]()
