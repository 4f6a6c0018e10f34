"""The receipts of this machine's answers to referees, in its folder: they convict a service that hides one later.

One file for each job of each chain, one JSON object per line, newest last; `gradmarket audit --receipts` reads it too.
A panel's auditor keeps its seals there as well.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.careful_side import PutQuestion
from gradmarket.market.features.disputes.questions import Reply, digest_reply
from gradmarket.market.features.disputes.receipts import KeptReceipt, receipt_struct
from gradmarket.market.features.log.job_log import SKEW_S
from gradmarket.market.messages import Offer
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import Domain, digest_struct
from gradmarket.market.terms import Address, Hash, TaskId
from gradmarket.market.wire.audit_messages import KeptSeal
from gradmarket.market.wire.hearing_messages import HearingReceipt
from worker import durable

KEPT: Final = TypeAdapter[KeptReceipt | KeptSeal](KeptReceipt | KeptSeal)


def find_receipts_file(folder: Path, instance: Hash, chain_job: int) -> Path:
    return folder / "receipts" / f"{instance.hex()}-{chain_job}.jsonl"


def build_receipt(
    domain: Domain, task: TaskId, offer: Offer, put: PutQuestion, reply: Reply, receipt: HearingReceipt
) -> KeptReceipt:
    """Returns the receipt of a reply with all that it is about."""
    return KeptReceipt(
        job=offer.job,
        task=task,
        offer=digest_struct(domain, offer),
        sides=(put.sides[0], put.sides[1]),
        roots=(put.roots[0], put.roots[1]),
        run=receipt.run,
        side=reply.side,
        number=put.number,
        said=digest_reply(reply.said),
        at=receipt.at,
        signature=receipt.signature,
    )


def keep_receipt(path: Path, domain: Domain, referee: Address, kept: KeptReceipt, sent: tuple[float, float]) -> None:
    """Appends a receipt. Raises Refused where the referee did not sign it, or names another time than that between
    which the answer was sent and the receipt came, in Unix seconds by this machine's clock: a restore could excuse an
    answer of an earlier time, and a later time is silence."""
    if not is_signed_by(domain, receipt_struct(kept), kept.signature, referee):
        raise Refused(f"the receipt of its answer to question {kept.number} is not signed by the referee")
    if not sent[0] - SKEW_S <= kept.at <= sent[1] + SKEW_S:
        of, here = f"the receipt of its answer to question {kept.number} is of Unix time {kept.at}", round(sent[1])
        raise Refused(f"{of}, and it is {here} here: set this machine's clock, unless the referee's is wrong")
    durable.append_line(path, kept.model_dump_json().encode() + b"\n")


class LoadedReceipts(NamedTuple):
    """`unread`: the number of lines that are no receipts: a crash may have cut the last one short."""

    receipts: Sequence[KeptReceipt]
    seals: Sequence[KeptSeal]
    unread: int


def load_receipts(path: Path) -> LoadedReceipts:
    """Returns the receipts in the order of the answers; none where there is no file. Raises Refused for one that cannot
    be read."""
    receipts, seals, unread = list[KeptReceipt](), list[KeptSeal](), 0
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        lines = []
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", "name a file of a side's `receipts` folder") from None
    for line in filter(None, lines):
        try:
            kept = KEPT.validate_json(line)
        except ValidationError:
            unread += 1
            continue
        if isinstance(kept, KeptSeal):
            seals.append(kept)
        else:
            receipts.append(kept)
    return LoadedReceipts(receipts, seals, unread)
