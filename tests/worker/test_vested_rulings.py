"""Rulings on locked pay: `wallet case examine | rule` decides a case, and `wallet verify` explains a burn."""

import json
import sys
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from contracts import calls, claims
from contracts.ledger import Ledger
from contracts.transactions import require_receipt
from gradmarket.cli import app
from gradmarket.compute.executor import Executor
from gradmarket.demo.cheat import wrap_with_cheat
from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.questions import DisputeAnswer, Question, Reply, digest_reply
from gradmarket.market.job import Publication
from gradmarket.market.messages import Ruling
from gradmarket.market.signing import Domain, address_of, digest_struct, sign_digest
from gradmarket.market.stakes import compute_accusation_event
from gradmarket.market.terms import Address, Amount, Digest, Hash, ReplicaState, TaskState, Units, blob_digest
from gradmarket.market.wire.evidence import PublishedAccusation, PublishedAudit, PublishedBallot, PublishedEvidence
from gradmarket.market.wire.hearing_messages import SignedRuling, build_ruling, name_dispute
from gradmarket.market.wire.poll import hash_of
from gradmarket.runner import Runner
from tests.kit.worker_context import fund_job
from tests.lanes import FULL, leave_to_full
from tests.onchain import HOUR, NewKey, OpenedJob, with_money
from tests.patience import PATIENCE_S
from tests.worker.conftest import SPEC, MakeContext, published_as
from tests.worker.fake_market import PRICE, FakeMarket
from worker import durable, wallet
from worker.features.disputes.hearing_client import _bring, ask_referee, connect_to_referee
from worker.features.stakes import examine
from worker.markets.loop import Loop
from worker.money import known_chains
from worker.protocol import records
from worker.protocol.in_flight import InFlightFolder, SealedAnswer
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
    """A worker that redeemed the pay of three answers, and whose last two prices a requester would burn."""

    market: FakeMarket
    url: str
    judge: PrivateKey
    folder: Path
    record: ReplicaRecord
    here: str
    """This machine's determinism class."""
    right: Digest
    """The right root of the answer's task."""

    @property
    def job(self) -> OpenedJob:
        return self.market.job

    @property
    def me(self) -> Address:
        return wallet.load_wallet(self.folder, None).address

    @property
    def own(self) -> SealedAnswer:
        assert self.record.prepared is not None
        return self.record.prepared

    @property
    def unpaid(self) -> int:
        return self.job.ledger.account(self.job.id, self.me).unpaid

    def accuse(self, found: Digest) -> Hash:
        """Accuses the worker's answer of another result than `found`."""
        offer = digest_struct(self.job.ledger.domain(), self.record.offer)
        event = compute_accusation_event(offer, self.own.sealed, hash_of(self.own.root), hash_of(found))
        self.job.send(calls.accuse_vested(self.job.market, self.job.id, self.me, VEST, event))
        return calls.vested_case_id(self.job.id, self.me, event)

    def burn(self, found: Digest) -> Hash:
        """Accuses it, and has the validator agree."""
        case = self.accuse(found)
        ruling = Ruling(case, Amount(VEST), True)
        signed = sign_digest(self.judge, digest_struct(self.job.ledger.domain(), ruling))
        self.job.send(calls.decide(self.job.market, case, True, [address_of(self.judge)], 1, [signed]))
        return case

    def publish(self, case: Hash, found: Digest | None) -> None:
        """Shows the audit, and the worker's own answer to the task."""
        accusation = PublishedAccusation(worker=self.me, case=case)
        record, own = self.record, self.own
        self.market.found = [PublishedAudit(task=str(record.lease.task), root=found, accusations=(accusation,))]
        ballot = PublishedBallot(
            id=record.lease.replica,
            worker=self.me,
            state=ReplicaState.PAYABLE,
            wave=0,
            sealed=own.sealed,
            commitment_signature=own.signature,
            salt=own.salt,
            root=own.root,
            determinism_class=self.here,
        )
        self.market.shown[str(record.lease.task)] = PublishedEvidence(
            state=TaskState.REVOKED,
            offer=record.lease.offer,
            offer_digest=digest_struct(self.job.ledger.domain(), record.offer),
            offer_signature=record.lease.signature,
            waves=(),
            replicas=(ballot,),
        )

    def verify(self, *words: str) -> tuple[int, set[str], dict[str, Any]]:
        """Returns the exit code, the faults, and the line about the burn."""
        done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(self.folder), "--json", *words])
        assert done.exit_code in (0, 1), done.output
        told = [json.loads(line) for line in done.stdout.splitlines()]
        (burnt,) = [line for line in told if line["event"] == "burnt"]
        return done.exit_code, {line["fault"] for line in told if line["event"] == "fault"}, burnt

    def as_validator(self, verb: str, case: Hash, *words: str, by: PrivateKey | None = None) -> Any:
        """Runs `wallet case` by the validator, or `by` another key."""
        folder = self.folder / address_of(by or self.judge)
        durable.write_file_atomically(folder / wallet.PLAIN, (by or self.judge).to_bytes().hex().encode())
        line = ["wallet", "case", verb, self.market.publication.job, "0x" + case.hex(), *words]
        return CliRunner().invoke(app, [*line, "--market", self.url, "--data", str(folder), "--json"])


MakeBurntPay = Callable[..., BurntPay]


@pytest.fixture
def make_burnt_pay(
    fake_market: FakeMarket,
    make_context: MakeContext,
    runner: Runner,
    worker_key: PrivateKey,
    judge: PrivateKey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> MakeBurntPay:
    """`lies`: the worker answers otherwise than its tasks come out. Validators compute in the tests' own child."""
    monkeypatch.setattr(examine, "Runner", lambda _settings: nullcontext(runner))

    def make(lies: bool = False) -> BurntPay:
        context = make_context(fake_market)
        limits = replace(context.limits, vest_s=1e9, validators=frozenset({address_of(judge)}))
        known_chains.store_chain_facts(tmp_path, context.facts)
        durable.write_file_atomically(tmp_path / wallet.PLAIN, worker_key.to_bytes().hex().encode())
        honest = context.executor
        liar = Executor(runner, honest._fetcher, limits, wrap_with_cheat("sign_flip", runner.compute))
        context = replace(context, limits=limits, executor=liar if lies else honest)
        loop = Loop(context, InFlightFolder(tmp_path / "held"))
        while loop.turn():
            pass
        (account,) = context.account_store.accounts
        assert account.signature is not None
        ledger, me = fake_market.job.ledger, context.address
        require_receipt(claims.redeem(ledger, with_money(ledger, judge), account.voucher(me), account.signature))
        assert ledger.balance(me) == PRICE
        record, *_ = records.load_records(tmp_path, context.domain, fake_market.job.id)
        right = blob_digest(honest.work(fake_market.publication, record.offer)[0])
        here = runner.determinism_class()
        return BurntPay(fake_market, str(context.settings.market), judge, tmp_path, record, here, right)

    return make


@pytest.fixture
def burnt_pay(make_burnt_pay: MakeBurntPay) -> BurntPay:
    return make_burnt_pay()


def list_rulings(done: Any) -> list[tuple[str, bool | None]]:
    assert done.exit_code == 0, done.output
    return [(line["event"], line.get("guilty")) for line in map(json.loads, done.stdout.splitlines())]


def test_a_worker_that_declines_unknown_validators_names_them_to_its_owner(
    fake_market: FakeMarket, make_context: MakeContext, judge: PrivateKey, tmp_path: Path
) -> None:
    context = make_context(fake_market)
    context = replace(context, limits=replace(context.limits, vest_s=1e9))
    Loop(context, InFlightFolder(tmp_path / "held")).turn()
    named = f"does not name could burn its last pay ({address_of(judge)})."
    assert named in (tmp_path / "journal").read_text()


def test_a_validator_finds_a_lie_by_computing_its_task_and_burns_the_locked_pay(make_burnt_pay: MakeBurntPay) -> None:
    liar = make_burnt_pay(lies=True)
    assert liar.own.root != liar.right
    case = liar.accuse(liar.right)
    liar.publish(case, liar.right)
    assert list_rulings(liar.as_validator("examine", case, "--rule")) == [("examined", True), ("decided", None)]
    assert liar.unpaid == 0
    again = liar.as_validator("rule", case, "--not-guilty")
    assert (again.exit_code, "is closed" in again.stderr) == (2, True)
    assert liar.verify()[:2] == (0, set())


def test_a_validator_acquits_honest_work_whatever_its_requester_publishes(burnt_pay: BurntPay) -> None:
    """The cheating twin: an auditor of the requester's own publishes another root as right."""
    assert burnt_pay.own.root == burnt_pay.right
    case = burnt_pay.accuse(FOUND)
    burnt_pay.publish(case, FOUND)
    assert list_rulings(burnt_pay.as_validator("examine", case, "--rule")) == [("examined", False), ("decided", None)]
    assert burnt_pay.unpaid == VEST


def write_heard(pay: BurntPay, *wrong: Address, by: PrivateKey | None = None, **changes: Any) -> Path:
    """What `wallet dispute judge --to` writes of the accused answer and the auditor's; `changes`: a liar's."""
    domain, key = pay.job.ledger.domain(), by or pay.judge
    sides, roots = (pay.me, STANDS_FOR_AUDIT), (hash_of(pay.own.root), hash_of(FOUND))
    told = {"offer": digest_struct(domain, pay.record.offer), "sides": sides, "roots": roots} | changes
    dispute = name_dispute(told["offer"], told["sides"], told["roots"])
    signature = sign_digest(key, digest_struct(domain, build_ruling(dispute, sides, frozenset(wrong), 3, "so")))
    ruling = SignedRuling(wrong=wrong, leaf=3, why="so", signature=signature)
    path = pay.folder / "heard.json"
    path.write_text(examine.HeardCase(**told, ruling=ruling).model_dump_json())
    return path


STANDS_FOR_AUDIT = address_of(PrivateKey(bytes([9]) * 32))


@pytest.mark.parametrize("guilty", [False, True])
def test_a_validator_of_another_class_decides_by_the_dispute_that_it_heard(burnt_pay: BurntPay, guilty: bool) -> None:
    pay = replace(burnt_pay, here="another class")
    case = pay.accuse(FOUND)
    pay.publish(case, FOUND)
    cannot = pay.as_validator("examine", case, "--rule")
    assert (cannot.exit_code, "answered in class another class" in cannot.stderr) == (2, True)
    heard = str(write_heard(pay, pay.me if guilty else STANDS_FOR_AUDIT))
    done = pay.as_validator("examine", case, "--rule", "--heard", heard)
    assert list_rulings(done) == [("examined", guilty), ("decided", None)]
    assert pay.unpaid == (0 if guilty else VEST)


class DisputeProcesses:
    """Commands of `gradmarket wallet dispute` about a burnt pay's answer, as processes of their own."""

    def __init__(self, pay: BurntPay) -> None:
        self.pay, self.running = pay, list[Popen[str]]()

    def start(self, key: PrivateKey, verb: str, *words: str) -> Popen[str]:
        folder = self.pay.folder / address_of(key)
        durable.write_file_atomically(folder / wallet.PLAIN, key.to_bytes().hex().encode())
        line = [sys.executable, "-m", "gradmarket", "wallet", "dispute", verb, self.pay.market.publication.job]
        line += [str(self.pay.record.lease.task), *words, "--market", self.pay.url, "--data", str(folder), "--json"]
        self.running.append(Popen(line, stdout=PIPE, stderr=STDOUT, text=True))
        return self.running[-1]

    def __enter__(self) -> "DisputeProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.running:
            one.kill()
            one.communicate()


def lose_at_once(url: str, domain: Domain, key: PrivateKey) -> None:
    """Brings an answer that cannot hold, and fetches the ruling."""
    side, body = address_of(key), b"nonsense"
    with closing(connect_to_referee(url, lambda _seconds: False)) as referee:
        asked = ask_referee(referee)
        dispute = name_dispute(asked.offer, asked.sides, asked.roots)
        question = Question(asked.asked, asked.level, asked.place).digest(dispute, asked.number)
        struct = DisputeAnswer(dispute, side, asked.number, question, digest_reply(body))
        _bring(referee, Reply(side, asked.number, body, sign_digest(key, digest_struct(domain, struct))))
        ruling = ask_referee(referee, asked.number, side).ruling
    assert ruling is not None
    assert ruling.wrong == (side,)


@FULL
@pytest.mark.parametrize("lies", [False, True])
def test_a_case_is_decided_by_the_file_of_a_dispute_that_real_processes_heard(
    make_burnt_pay: MakeBurntPay, worker_key: PrivateKey, lies: bool
) -> None:
    """The side whose answer the task does not come out as has nothing to defend; the other one answers."""
    pay = make_burnt_pay(lies)
    found, stands, to = pay.right if lies else FOUND, PrivateKey(bytes([9]) * 32), pay.folder / "ruling.json"
    honest, liar = (stands, worker_key) if lies else (worker_key, stands)
    case = pay.accuse(found)
    pay.publish(case, found)
    with DisputeProcesses(pay) as processes:
        named = ("--side", pay.me, "--side", STANDS_FOR_AUDIT, "--port", "0", "--to", str(to))
        referee = processes.start(pay.judge, "judge", *named)
        assert referee.stdout is not None
        url = json.loads(referee.stdout.readline())["url"]
        for_nothing = processes.start(liar, "answer", "--referee", url)
        assert "there is nothing to defend" in for_nothing.communicate(timeout=PATIENCE_S)[0]
        defends = processes.start(honest, "answer", "--referee", url, "--referee-key", address_of(pay.judge))
        assert defends.stdout is not None
        assert json.loads(defends.stdout.readline())["event"] == "asked"
        lose_at_once(url, pay.job.ledger.domain(), liar)
        for one in (defends, referee):
            assert address_of(liar) + " is wrong" in one.communicate(timeout=PATIENCE_S)[0]
            assert one.returncode == 0
    done = pay.as_validator("examine", case, "--rule", "--heard", str(to))
    assert list_rulings(done) == [("examined", lies), ("decided", None)]
    assert pay.unpaid == (0 if lies else VEST)
    other = pay.as_validator("examine", case, "--heard", str(to), by=stands)
    assert (other.exit_code, "did not rule so" in other.stderr) == (2, True)


def test_a_hearing_of_others_or_without_one_loser_decides_no_case(burnt_pay: BurntPay, new_key: NewKey) -> None:
    case = burnt_pay.accuse(FOUND)
    burnt_pay.publish(case, FOUND)
    me, roots = burnt_pay.me, (hash_of(burnt_pay.own.root), hash_of(FOUND))
    refusals: dict[str, Callable[[], Path]] = {
        "did not rule so": lambda: write_heard(burnt_pay, me, by=new_key()),
        "names both sides": lambda: write_heard(burnt_pay, me, STANDS_FOR_AUDIT),
        "names no side": lambda: write_heard(burnt_pay),
        "is not of the accused answer": lambda: write_heard(burnt_pay, me, roots=(roots[0], hash_of(ANOTHER))),
        "the accused answer to": lambda: write_heard(burnt_pay, me, roots=roots[::-1]),
        "one that its audit found": lambda: write_heard(burnt_pay, me, offer=Hash(bytes(32))),
        "holds no ruling": lambda: burnt_pay.folder / "none.json",
    }
    for words, write in refusals.items():
        done = burnt_pay.as_validator("examine", case, "--rule", "--heard", str(write()))
        assert (done.exit_code, words in done.stderr) == (2, True), (words, done.stderr)
    assert burnt_pay.unpaid == VEST


@pytest.mark.parametrize("written", [None, b"", b"{}", b"[1]", b"\xff", b"[" * 100_000], ids=repr)
def test_a_file_without_a_hearing_is_refused_in_one_sentence(tmp_path: Path, written: bytes | None) -> None:
    path = tmp_path / "heard.json"
    path.mkdir() if written is None else path.write_bytes(written)
    with pytest.raises(Refused, match="holds no ruling: ") as refused:
        examine.read_heard_case(path)
    assert not [word for word in ("Errno", "pydantic", "\n") if word in str(refused.value)]
    with pytest.raises(Refused, match="No such file"):
        examine.read_heard_case(tmp_path / "none.json")


@pytest.mark.parametrize("shown", leave_to_full([None, ANOTHER]))
def test_an_accusation_that_its_evidence_does_not_make_up_is_not_guilty(
    burnt_pay: BurntPay, shown: Digest | None
) -> None:
    case = burnt_pay.accuse(FOUND)
    if shown is not None:
        burnt_pay.publish(case, shown)
    assert list_rulings(burnt_pay.as_validator("examine", case)) == [("examined", False)]
    assert burnt_pay.unpaid == VEST


@FULL
def test_nobody_but_the_jobs_validators_rules_on_locked_pay(burnt_pay: BurntPay, new_key: NewKey) -> None:
    case = burnt_pay.accuse(FOUND)
    stranger = burnt_pay.as_validator("rule", case, "--guilty", by=new_key())
    assert (stranger.exit_code, "not one of the job's validators" in stranger.stderr) == (2, True)
    assert list_rulings(burnt_pay.as_validator("rule", case, "--not-guilty")) == [("decided", None)]
    assert burnt_pay.unpaid == VEST


@FULL
def test_a_burn_is_shown_by_the_audit_of_an_own_answer(burnt_pay: BurntPay) -> None:
    case = burnt_pay.burn(FOUND)
    burnt_pay.publish(case, FOUND)
    code, faults, burnt = burnt_pay.verify()
    assert (code, faults) == (0, set())
    assert (burnt["case"], burnt["amount"], burnt["proven"]) == ("0x" + case.hex(), str(VEST), True)
    assert f"wallet case examine {burnt_pay.market.publication.job} {burnt['case']}" in burnt["text"]


@pytest.mark.parametrize("shown", leave_to_full([ANOTHER, None]))
def test_a_burn_about_another_result_than_is_published_is_named(burnt_pay: BurntPay, shown: Digest | None) -> None:
    """The cheating twin: the validators are the requester's friends, and ruled on nothing."""
    burnt_pay.publish(burnt_pay.burn(FOUND), shown)
    code, faults, burnt = burnt_pay.verify()
    assert (code, faults) == (1, {"unproven_burn"})
    assert "IN QUESTION" in burnt["text"]


@FULL
def test_a_burn_of_an_answer_that_its_audit_confirmed_is_named(burnt_pay: BurntPay) -> None:
    burnt_pay.publish(burnt_pay.burn(burnt_pay.right), burnt_pay.right)
    assert burnt_pay.verify()[:2] == (1, {"unproven_burn"})


def test_a_burn_without_a_published_audit_is_named_and_one_that_nobody_asks_about_is_in_question(
    burnt_pay: BurntPay,
) -> None:
    burnt_pay.burn(FOUND)
    assert burnt_pay.verify()[:2] == (1, {"unproven_burn"})
    code, faults, burnt = burnt_pay.verify("--no-market")
    assert (code, faults, burnt["proven"]) == (0, set(), False)
    assert "IN QUESTION" in burnt["text"]
