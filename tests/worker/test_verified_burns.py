"""`wallet verify` about locked pay that a ruling burnt: shown by a published audit of an own answer, or in question."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from contracts import calls, claims
from contracts.ledger import Ledger
from contracts.transactions import require_receipt
from gradmarket.cli import app
from gradmarket.market.job import Publication
from gradmarket.market.messages import Ruling
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.stakes import compute_accusation_event
from gradmarket.market.terms import Amount, Digest, Hash, Units
from gradmarket.market.wire.evidence import PublishedAccusation, PublishedAudit
from gradmarket.market.wire.poll import hash_of
from tests.kit.desk import fund_job
from tests.onchain import HOUR, NewKey, OpenedJob, with_money
from tests.worker.conftest import SPEC, MakeDesk, published_as
from tests.worker.fake_market import PRICE, FakeMarket
from worker import durable, wallet
from worker.markets.loop import Loop
from worker.money import known_chains
from worker.protocol import records
from worker.protocol.in_flight import InFlightFolder
from worker.protocol.records import ReplicaRecord

VEST, WINDOW, BOND = Units(2 * PRICE), 10 * HOUR, 5
FOUND, ANOTHER = Digest("blake3:" + "ab" * 32), Digest("blake3:" + "cd" * 32)


@pytest.fixture
def judge(new_key: NewKey) -> PrivateKey:
    return new_key()


@pytest.fixture
def publication(blobs: dict[Digest, bytes], judge: PrivateKey) -> Publication:
    vesting = {"prices": 2, "window_s": WINDOW, "decide_s": HOUR, "validators": [address_of(judge)], "bond": str(BOND)}
    return published_as(blobs, **SPEC, audit={"probability": 0.5}, vesting=vesting)


@pytest.fixture
def chain_job(ledger: Ledger, new_key: NewKey, publication: Publication, judge: PrivateKey) -> OpenedJob:
    vest = {"vest": VEST, "vest_window": WINDOW, "vest_quorum": calls.quorum_of([address_of(judge)], 1)}
    return fund_job(ledger, new_key(), new_key(), publication, decision_window=HOUR, bond=BOND, **vest)


@dataclass
class BurntPay:
    """A worker that redeemed what three answers earned, and whose last two prices a requester would burn."""

    market: FakeMarket
    judge: PrivateKey
    folder: Path
    record: ReplicaRecord

    def burn(self, found: Digest) -> Hash:
        """Accuses the worker's answer of another result than `found`, and has the validator agree."""
        job, me, record = self.market.job, wallet.load_wallet(self.folder, None).address, self.record
        assert record.prepared is not None
        assert record.root is not None
        offer = digest_struct(job.ledger.domain(), record.offer)
        event = compute_accusation_event(offer, record.prepared.sealed, record.root, hash_of(found))
        job.send(calls.accuse_vested(job.market, job.id, me, VEST, event))
        case = calls.vested_case_id(job.id, me, event)
        ruling = Ruling(case, Amount(VEST), True)
        signed = sign_digest(self.judge, digest_struct(job.ledger.domain(), ruling))
        job.send(calls.decide(job.market, case, True, [address_of(self.judge)], 1, [signed]))
        return case

    def publish(self, case: Hash, found: Digest | None) -> None:
        me = wallet.load_wallet(self.folder, None).address
        accusation = PublishedAccusation(worker=me, case=case)
        task = str(self.record.lease.task)
        self.market.found = [PublishedAudit(task=task, root=found, accusations=(accusation,))]

    def verify(self, *words: str) -> tuple[int, set[str], dict[str, str]]:
        """The exit code, the faults, and what is said of the burn."""
        done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(self.folder), "--json", *words])
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.exit_code in (0, 1), done.output
        (burnt,) = [line for line in told if line["event"] == "burnt"]
        return done.exit_code, {line["fault"] for line in told if line["event"] == "fault"}, burnt


@pytest.fixture
def burnt_pay(
    fake_market: FakeMarket, make_desk: MakeDesk, worker_key: PrivateKey, judge: PrivateKey, tmp_path: Path
) -> BurntPay:
    context = make_desk(fake_market)
    context.limits = replace(context.limits, vest_s=1e9, validators=frozenset({address_of(judge)}))
    known_chains.store_chain_facts(tmp_path, context.facts)
    durable.write_file_atomically(tmp_path / wallet.PLAIN, worker_key.to_bytes().hex().encode())
    loop = Loop(context, InFlightFolder(tmp_path / "held"))
    while loop.turn():
        pass
    (account,) = context.account_store.accounts
    assert account.signature is not None
    ledger, me = fake_market.job.ledger, context.address
    require_receipt(claims.redeem(ledger, with_money(ledger, judge), account.voucher(me), account.signature))
    assert ledger.balance(me) == PRICE
    record, *_ = records.load_records(tmp_path, context.domain, fake_market.job.id)
    return BurntPay(fake_market, judge, tmp_path, record)


def test_a_burn_is_shown_by_the_audit_of_an_own_answer(burnt_pay: BurntPay) -> None:
    case = burnt_pay.burn(FOUND)
    burnt_pay.publish(case, FOUND)
    code, faults, burnt = burnt_pay.verify()
    assert (code, faults) == (0, set())
    assert (burnt["case"], burnt["amount"], burnt["proven"]) == ("0x" + case.hex(), str(VEST), True)
    assert f"wallet case examine {burnt_pay.market.publication.job} {burnt['case']}" in burnt["text"]


@pytest.mark.parametrize("shown", [ANOTHER, None])
def test_a_burn_about_another_result_than_is_published_is_named(burnt_pay: BurntPay, shown: Digest | None) -> None:
    """The cheating twin: the validators are the requester's friends, and ruled on nothing."""
    burnt_pay.publish(burnt_pay.burn(FOUND), shown)
    code, faults, burnt = burnt_pay.verify()
    assert (code, faults) == (1, {"unproven_burn"})
    assert "IN QUESTION" in burnt["text"]


def test_a_burn_of_an_answer_that_its_audit_confirmed_is_named(burnt_pay: BurntPay) -> None:
    own = burnt_pay.record.prepared
    assert own is not None
    burnt_pay.publish(burnt_pay.burn(own.root), own.root)
    assert burnt_pay.verify()[:2] == (1, {"unproven_burn"})


def test_a_burn_without_a_published_audit_is_named_and_one_that_nobody_asks_about_is_in_question(
    burnt_pay: BurntPay,
) -> None:
    burnt_pay.burn(FOUND)
    assert burnt_pay.verify()[:2] == (1, {"unproven_burn"})
    code, faults, burnt = burnt_pay.verify("--no-market")
    assert (code, faults, burnt["proven"]) == (0, set(), False)
    assert "IN QUESTION" in burnt["text"]
