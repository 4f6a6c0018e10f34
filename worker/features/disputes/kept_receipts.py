"""The receipts of this machine's answers to referees, in its folder: they convict a service that hides one later.

One file for each job of each chain, one JSON object per line, newest last; `gradmarket audit --receipts` reads it too.
"""

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.careful_side import PutQuestion
from gradmarket.market.features.disputes.questions import Reply, digest_reply
from gradmarket.market.features.disputes.transcript import receipt_struct
from gradmarket.market.messages import Offer
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import Domain, digest_struct
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.hearing_messages import HearingReceipt, KeptReceipt
from worker import durable


def find_receipts_file(folder: Path, instance: Hash, chain_job: int) -> Path:
    return folder / "receipts" / f"{instance.hex()}-{chain_job}.jsonl"


def keep_receipt(
    path: Path, domain: Domain, offer: Offer, referee: Address, put: PutQuestion, reply: Reply, receipt: HearingReceipt
) -> None:
    """Appends the receipt of a reply. Raises Refused where the referee did not sign it."""
    kept = KeptReceipt(
        job=offer.job,
        offer=digest_struct(domain, offer),
        sides=(put.sides[0], put.sides[1]),
        roots=(put.roots[0], put.roots[1]),
        side=reply.side,
        number=put.number,
        said=digest_reply(reply.said),
        run=receipt.run,
        at=receipt.at,
        signature=receipt.signature,
    )
    if not is_signed_by(domain, receipt_struct(kept), kept.signature, referee):
        raise Refused(f"the receipt of its answer to question {put.number} is not signed by the referee")
    durable.append_line(path, kept.model_dump_json().encode() + b"\n")


def load_receipts(path: Path) -> Iterator[KeptReceipt]:
    """Yields the receipts in the order of the answers; lines that a crash cut short are left out."""
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            yield KeptReceipt.model_validate_json(line)
        except ValidationError:
            continue
