"""Panels: several auditors of separate operators compute an audited task, and `agree` of them must find the same
answer.

Each auditor first signs a sealed answer, and opens it only after the whole panel has sealed, so no auditor can wait for
another's answer. An answer that `agree` auditors found decides the audit; fewer that act as one decide nothing: further
auditors join until an answer has enough. Where the job has a referee, it first hears the auditors that differ, and the
answer that stands alone decides. An auditor that opened another answer than the deciding one, or sealed one and did not
open it, audits nothing more in the job. An auditor that left its seat before it sealed may take one again while the
seat is free: a panel of the only auditors online outlasts the restart of one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from gradmarket.market.job_fields import JobFields
from gradmarket.market.job_parts import AuditPanel
from gradmarket.market.rules import verifiers
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Digest, Hash, PanelSeatState, domain_hash
from gradmarket.market.wire.audit_messages import PanelOpening, PanelSeal
from gradmarket.market.wire.evidence import PublishedSeat
from gradmarket.market.wire.poll import hash_of

GONE: Final = (PanelSeatState.LEFT, PanelSeatState.WITHHELD, PanelSeatState.WRONG)
BARRED: Final = (PanelSeatState.WRONG, PanelSeatState.WITHHELD)
Turn = Literal["join", "seal", "open", "wait"]


@dataclass(frozen=True, slots=True)
class PanelMember:
    """`auditor`: the name of the operator's machine; `root`: the answer it opened; `asked`: whether it must open its
    answer.

    `number`: the number of the panel's seats that were taken before this one.
    """

    operator: str
    auditor: str
    state: PanelSeatState
    root: Digest | None = None
    asked: bool = False
    number: int = 0


def find_decided_root(members: Iterable[PanelMember], agree: int) -> Digest | None:
    """Returns the answer that at least `agree` members have opened, once all live members have opened theirs."""
    live = [member for member in members if member.state not in GONE]
    if any(member.state != PanelSeatState.OPENED for member in live):
        return None
    ranked = Counter(member.root for member in live if member.root).most_common(1)
    return ranked[0][0] if ranked and ranked[0][1] >= agree else None


def count_taken(members: Sequence[PanelMember]) -> int:
    """Returns how often a seat of the panel was taken."""
    return max(len(members), max((member.number + 1 for member in members), default=0))


def count_wanted(members: Sequence[PanelMember], panel: AuditPanel) -> int:
    """Returns the sealed answers needed before any is opened: more where the opened ones do not decide."""
    roots = [member.root for member in members if member.state == PanelSeatState.OPENED]
    largest = max(Counter(roots).values(), default=0)
    return max(panel.count, len(roots) + panel.agree - largest)


def is_complete(members: Sequence[PanelMember], panel: AuditPanel) -> bool:
    """Returns whether all have sealed their answers, so that they are to be opened."""
    live = [member for member in members if member.state not in GONE]
    return len(live) >= count_wanted(members, panel) and all(one.state != PanelSeatState.TAKEN for one in live)


def choose_turn(members: Sequence[PanelMember], panel: AuditPanel, operator: str, auditor: str) -> Turn:
    """Returns the next action of this operator's machine in the panel.

    Only the machine that took its operator's seat continues it. An operator that left its seat may take it again where
    it is free; a barred operator gets none.
    """
    own = next((member for member in members if member.operator == operator), None)
    if own is not None and own.state != PanelSeatState.LEFT:
        if own.auditor != auditor:
            return "wait"
        if own.state == PanelSeatState.TAKEN:
            return "seal"
        return "open" if _is_to_open(own) else "wait"
    live = sum(member.state not in GONE for member in members)
    is_full = live >= count_wanted(members, panel) or count_taken(members) >= panel.most_seats
    is_full = is_full or any(member.state == PanelSeatState.HEARD for member in members)
    return "wait" if is_full else "join"


def _is_to_open(member: PanelMember) -> bool:
    return member.state == PanelSeatState.SEALED and member.asked


def is_disputed(members: Iterable[PanelMember]) -> bool:
    """Returns whether all have opened their answers, and two of them differ."""
    live = [member for member in members if member.state not in GONE]
    return all(one.state == PanelSeatState.OPENED for one in live) and len({one.root for one in live}) > 1


def is_at_end(members: Sequence[PanelMember], panel: AuditPanel) -> bool:
    """Returns whether no further auditor can join and the opened answers decide nothing."""
    busy = (PanelSeatState.TAKEN, PanelSeatState.HEARD)
    awaited = any(one.state in busy or _is_to_open(one) for one in members)
    return (
        not awaited
        and not is_complete(members, panel)
        and count_taken(members) >= panel.most_seats
        and find_decided_root(members, panel.agree) is None
    )


def list_wrong(members: Iterable[PanelMember], decided: Digest) -> list[PanelMember]:
    return [member for member in members if member.state == PanelSeatState.OPENED and member.root != decided]


def derive_salt(key: bytes, offer: Hash, run: int) -> Hash:
    """Returns the salt of an auditor's seal: derived from the auditor's key alone, so the auditor need not store it."""
    return domain_hash("audit salt", key, offer, run.to_bytes(8, "big"))


def seal_audit(offer: Hash, auditor: Address, run: int, salt: Hash, root: Hash) -> Hash:
    """Returns a salted answer bound to its auditor: no other auditor can open a copy of it."""
    return domain_hash("audit seal", offer, auditor.encode(), run.to_bytes(8, "big"), salt, root)


def is_seal_signed(domain: Domain, offer: Hash, seal: PanelSeal | PublishedSeat) -> bool:
    """Returns whether there is a seal, which its signer signed."""
    if seal.signer is None or seal.sealed is None:
        return False
    return is_signed_by(domain, AuditSeal(offer, seal.signer, seal.run, seal.sealed), seal.signature, seal.signer)


def is_seal_opened(offer: Hash, signer: Address, sealed: Hash, opening: PanelOpening) -> bool:
    """Returns whether salt and root open the signer's sealed answer."""
    return seal_audit(offer, signer, opening.run, opening.salt, hash_of(opening.root)) == sealed


def find_proven_answer(domain: Domain, offer: Hash, seat: PublishedSeat) -> tuple[Address, Digest] | None:
    """Returns an auditor and its answer, where it signed the seal that this answer opens; else None."""
    if seat.signer is None or seat.sealed is None or seat.root is None or seat.salt is None:
        return None
    opened = seal_audit(offer, seat.signer, seat.run, seat.salt, hash_of(seat.root)) == seat.sealed
    return (seat.signer, seat.root) if opened and is_seal_signed(domain, offer, seat) else None


@dataclass(frozen=True, slots=True)
class AuditSeal:
    """An auditor's sealed answer to the offer, in run `run` of its audit."""

    TYPE: ClassVar[str] = "AuditSeal(bytes32 instance,bytes32 offer,address auditor,uint64 run,bytes32 sealed)"
    offer: Hash
    auditor: Address
    run: int
    sealed: Hash


def find_panel_fault(spec: JobFields) -> str:
    """Returns why no panel can audit this job, the field first; empty where one can, or is not to."""
    plain = not spec.private and spec.verifier.name == verifiers.DEFAULT and not spec.step.leaves
    if not spec.panel or plain:
        return ""
    remedy = f"take the verifier {verifiers.DEFAULT}, open rows and no step.window"
    return f"audit.auditors: each compares the bits of a whole task: {remedy}"
