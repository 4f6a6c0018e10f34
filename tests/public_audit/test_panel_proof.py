"""What panels found is proven by sealed and signed answers: each lie of a service about a panel is found."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_keys.datatypes import PrivateKey

from gradmarket.market.features.log.job_log import encode_seal
from gradmarket.market.features.log.merkle import hash_leaf
from gradmarket.market.job_parts import AuditPanel
from gradmarket.market.messages import Offer
from gradmarket.market.signing import Domain, digest_struct
from gradmarket.market.terms import Address, Digest, Hash, TaskId, Units
from gradmarket.market.wire.audit_messages import KeptSeal
from gradmarket.market.wire.evidence import PublishedAudit, PublishedSeat
from gradmarket.public_audit.job_proof import JobRecord
from gradmarket.public_audit.panel_proof import find_panel_faults, prove_panels
from gradmarket.sealing import SealingKey

DOMAIN = Domain(31337, Address("0x" + "11" * 20), Hash(bytes(32)))
OFFER = Offer(1, Hash(bytes(32)), 0, 0, 0, Hash(bytes(32)), Hash(bytes(32)), Units(1), Hash(bytes(32)), 20, 10, 10)
RIGHT, WRONG = Digest("blake3:" + "1" * 64), Digest("blake3:" + "2" * 64)
ANN, BEA, CEM = (SealingKey(f"m{number}", PrivateKey(bytes([number]) * 32)) for number in (1, 2, 3))


def sit(key: SealingKey, root: Digest, run: int = 0) -> PublishedSeat:
    seal, opening = key.seal(DOMAIN, OFFER, run, root), key.open(DOMAIN, OFFER, run, root, 1.0)
    signed: dict[str, Any] = {"signer": seal.signer, "sealed": seal.sealed, "signature": seal.signature}
    return PublishedSeat(**signed, run=run, root=root, salt=opening.salt)


def change_seal(key: SealingKey) -> PublishedSeat:
    """A withheld answer under another seal than its auditor signed."""
    return sit(key, WRONG).model_copy(update={"root": None, "salt": None, "sealed": Hash(bytes(32))})


def audited(*seats: PublishedSeat, root: Digest = RIGHT) -> PublishedAudit:
    return PublishedAudit(task="t", root=root, panel=seats)


def faults(audit: PublishedAudit, agree: int = 2) -> list[str]:
    offer = digest_struct(DOMAIN, OFFER)
    return list(find_panel_faults(DOMAIN, offer, audit, AuditPanel(count=max(2, agree), agree=agree)))


def test_a_result_that_so_many_sealed_and_signed_is_proven() -> None:
    assert faults(audited(sit(ANN, RIGHT), sit(BEA, RIGHT))) == []
    assert faults(audited(sit(ANN, WRONG), sit(BEA, RIGHT), sit(CEM, RIGHT))) == []
    withheld = sit(CEM, RIGHT).model_copy(update={"root": None, "salt": None})
    assert faults(audited(sit(ANN, RIGHT), withheld, sit(BEA, RIGHT))) == []


@pytest.mark.parametrize(
    ("audit", "said"),
    [
        (audited(sit(ANN, RIGHT), sit(BEA, WRONG)), "1 auditors answered"),
        (audited(sit(ANN, WRONG), sit(BEA, WRONG)), "0 auditors answered"),
        (audited(sit(ANN, RIGHT), sit(ANN, RIGHT)), "answered 2 times"),
        (audited(sit(ANN, RIGHT, 0), sit(BEA, RIGHT, 1)), "1 auditors answered"),
        (audited(sit(ANN, RIGHT), sit(BEA, WRONG).model_copy(update={"root": RIGHT})), "opens no seal"),
        (audited(sit(ANN, RIGHT), sit(BEA, RIGHT).model_copy(update={"signature": bytes(65)})), "opens no seal"),
        (audited(sit(ANN, RIGHT), sit(ANN, RIGHT).model_copy(update={"signer": BEA.signer})), "opens no seal"),
        (audited(sit(ANN, RIGHT), sit(BEA, RIGHT), change_seal(CEM)), "is not signed by it"),
        (audited(), "0 auditors answered"),
    ],
)
def test_each_lie_about_a_panel_is_found(audit: PublishedAudit, said: str) -> None:
    assert any(said in fault for fault in faults(audit)), faults(audit)


def keep(seat: PublishedSeat, job: int = 1) -> KeptSeal:
    fields = seat.model_dump(include={"signer", "sealed", "signature", "run"})
    return KeptSeal(job=job, task=TaskId("t"), offer=digest_struct(DOMAIN, OFFER), **fields)


DISSENT = sit(CEM, WRONG)
SHOWN = audited(sit(ANN, RIGHT), sit(BEA, RIGHT))


@pytest.mark.parametrize(
    ("audit", "kept", "logged", "convicts"),
    [
        (audited(sit(ANN, RIGHT), sit(BEA, RIGHT), DISSENT), keep(DISSENT), True, False),
        (SHOWN, keep(DISSENT), True, True),
        (SHOWN, keep(DISSENT), False, False),
        (SHOWN.model_copy(update={"panel": None}), keep(DISSENT), True, True),
        (None, keep(DISSENT), True, True),
        (audited(sit(ANN, RIGHT), sit(BEA, RIGHT), sit(CEM, RIGHT)), keep(DISSENT), True, True),
        (SHOWN, keep(DISSENT).model_copy(update={"signature": bytes(65)}), False, False),
        (SHOWN, keep(DISSENT, job=2), True, False),
        (PublishedAudit(task="t"), keep(DISSENT), True, False),
    ],
)
def test_an_auditor_finds_the_seat_that_a_service_hides_by_the_seal_that_it_kept(
    audit: PublishedAudit | None, kept: KeptSeal, logged: bool, convicts: bool
) -> None:
    data = encode_seal(kept.offer, kept.signer, kept.run, kept.sealed, kept.signature)
    spec = SimpleNamespace(panel=AuditPanel(count=2, agree=2))
    shown = {"t": SimpleNamespace(audit=audit, offer_digest=kept.offer, hearings=None)}
    record: dict[str, Any] = {"publication": SimpleNamespace(spec=spec), "evidence": shown, "domain": DOMAIN}
    record |= {"log": SimpleNamespace(leaves=[Hash(hash_leaf(data))] * logged), "opened": SimpleNamespace(job=1)}
    (result,) = prove_panels(cast(JobRecord, SimpleNamespace(**record)), [kept, kept])
    assert [one.detail.endswith("which is hidden") for one in result.faults] == [True] * convicts
    shows_nothing = not logged or (audit is not None and audit.root is None)
    assert any("1 seal that the log lacks" in unseen for unseen in result.unseen) is shows_nothing
