"""A running worker contests by itself: it searches accusations on the chain and reports them, at a bounded cost."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey

from contracts import calls, events, stakes
from contracts.ledger import Ledger
from contracts.local import LocalChain
from contracts.rpc import call_json_rpc
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.messages import Ruling
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Amount, Hash, Units
from tests.lanes import FULL
from tests.onchain import HOUR, NewKey, OpenedJob, with_money
from tests.worker.fake_market import FakeMarket
from worker import wallet
from worker.features.stakes import accusation_watch, cases
from worker.features.stakes.accusation_watch import AT_ONCE, AccusationWatch
from worker.features.stakes.cases import WalletCase
from worker.journal import Journal
from worker.money import known_chains
from worker.settings import WorkerSettings
from worker.wallet import Wallet

AT_RISK, ACCUSED, SPEC = Amount(300), Amount(100), Hash(b"\x05" * 32)


@pytest.fixture
def judge(new_key: NewKey) -> PrivateKey:
    return new_key()


@pytest.fixture
def job(ledger: Ledger, new_key: NewKey) -> OpenedJob:
    """One whose requester can slash."""
    requester, signer = with_money(ledger, new_key()), new_key()
    expiry = ledger.block().time + HOUR
    place = (Units(1000), Amount(1), expiry, expiry + HOUR, address_of(signer), SPEC)
    opening = calls.open_job(ledger.deployment.contract, calls.OpenJob(*place, 1, HOUR, HOUR, 5))
    (event,) = events.opened(ledger, require_receipt(execute_call(ledger.web3, requester, opening)))
    return OpenedJob(event.job, ledger, requester, signer, SPEC, expiry, expiry + HOUR)


@pytest.fixture
def me(tmp_path: Path, anvil: LocalChain, fake_market: FakeMarket) -> Wallet:
    known_chains.store_chain_facts(tmp_path, fake_market.facts(anvil.url))
    return wallet.create_wallet(tmp_path, None)


def stake(job: OpenedJob, me: Wallet, judge: PrivateKey) -> None:
    with_money(job.ledger, me.key)
    quorum = calls.quorum_of([address_of(judge)], 1)
    for call in (calls.stake(job.market, AT_RISK), calls.join_job(job.market, job.id, AT_RISK, quorum)):
        require_receipt(execute_call(job.ledger.web3, me.key, call))


def accuse(job: OpenedJob, whom: Address) -> Hash:
    """Of an answer that nobody ever gave."""
    event = Hash(b"\x07" * 32)
    with_money(job.ledger, job.requester)
    job.send(calls.accuse(job.market, job.id, whom, ACCUSED, event))
    return calls.case_id(job.id, whom, event)


def watching(folder: Path, me: Wallet, **settings: Any) -> tuple[AccusationWatch, Path]:
    journal = folder / "journal"
    return AccusationWatch.of_wallet(
        WorkerSettings(data=folder, **settings), me, Journal(as_json=True, stream=journal.open("a"))
    ), journal


def list_event_names(journal: Path) -> list[str]:
    return [json.loads(line)["event"] for line in journal.read_text().splitlines()]


def look(watch: AccusationWatch) -> None:
    """Until it has read the whole chain."""
    while not watch.look():
        assert watch.standing == 0


def test_a_made_up_accusation_is_contested_by_itself_and_the_stake_stays(
    tmp_path: Path, job: OpenedJob, me: Wallet, judge: PrivateKey
) -> None:
    stake(job, me, judge)
    watch, journal = watching(tmp_path, me)
    case = accuse(job, me.address)
    look(watch)
    assert stakes.case(job.ledger, case).stage == stakes.CaseStage.CONTESTED
    assert list_event_names(journal) == ["accused", "contested"]
    assert "cannot have given a wrong one" in journal.read_text()
    look(watch)
    assert (watch.standing, list_event_names(journal)) == (1, ["accused", "contested"]), "each stage is told once"
    ruling = sign_digest(judge, digest_struct(job.ledger.domain(), Ruling(case, ACCUSED, False)))
    job.send(calls.decide(job.market, case, False, [address_of(judge)], 1, [ruling]))
    look(watch)
    assert (watch.standing, list_event_names(journal)[-1]) == (0, "accused")
    assert "An accusation is over" in journal.read_text()
    assert stakes.staker(job.ledger, me.address).amount == AT_RISK


def test_a_full_disk_or_a_damaged_book_keeps_no_case_uncontested(
    tmp_path: Path, job: OpenedJob, me: Wallet, judge: PrivateKey
) -> None:
    """Its log and its records have the evidence; the stake depends on the contest."""
    stake(job, me, judge)
    (tmp_path / "book.json").write_text("{")
    journal = Journal(as_json=True, stream=Path("/dev/full").open("w"))  # noqa: SIM115
    watch = AccusationWatch.of_wallet(WorkerSettings(data=tmp_path), me, journal)
    case = accuse(job, me.address)
    for _ in range(3):
        watch.look()
    assert stakes.case(job.ledger, case).stage == stakes.CaseStage.CONTESTED
    with suppress(OSError):
        journal._stream.close()
    healthy, told_to = watching(tmp_path, me)
    (tmp_path / "book.json").unlink()
    look(healthy)
    assert list_event_names(told_to) == ["accused"], "what could not be told is told later"


def test_an_accused_worker_without_a_watch_is_slashed(own_job: OpenedJob, me: Wallet, judge: PrivateKey) -> None:
    """The twin without a watch."""
    stake(own_job, me, judge)
    case = accuse(own_job, me.address)
    call_json_rpc(own_job.ledger.web3, "evm_increaseTime", hex(HOUR + 2))
    call_json_rpc(own_job.ledger.web3, "evm_mine")
    own_job.send(calls.close_case(own_job.market, case))
    assert stakes.staker(own_job.ledger, me.address).amount == AT_RISK - ACCUSED


@pytest.fixture
def own_job(own_ledger: Ledger, new_key: NewKey) -> OpenedJob:
    """On a chain whose clock is moved."""
    made: OpenedJob = job.__wrapped__(own_ledger, new_key)  # type: ignore[attr-defined]
    return made


@FULL
def test_a_watch_without_contest_reports_the_case_and_sends_nothing(
    tmp_path: Path, job: OpenedJob, me: Wallet, judge: PrivateKey
) -> None:
    stake(job, me, judge)
    case, nonce = accuse(job, me.address), job.ledger.nonce(me.address)
    watch, journal = watching(tmp_path, me, contest=False)
    look(watch)
    assert stakes.case(job.ledger, case).stage == stakes.CaseStage.OPEN
    assert (list_event_names(journal), job.ledger.nonce(me.address)) == (["accused"], nonce)


def test_a_silent_chain_is_reported_and_tried_again(
    tmp_path: Path, anvil: LocalChain, fake_market: FakeMarket, job: OpenedJob, judge: PrivateKey
) -> None:
    known_chains.store_chain_facts(tmp_path, fake_market.facts("http://127.0.0.1:9"))
    me = wallet.create_wallet(tmp_path, None)
    watch, journal = watching(tmp_path, me)
    assert watch.look()
    assert list_event_names(journal) == ["watch"]
    known_chains.store_chain_facts(tmp_path, fake_market.facts(anvil.url))
    stake(job, me, judge)
    case = accuse(job, me.address)
    look(watch)
    assert stakes.case(job.ledger, case).stage == stakes.CaseStage.CONTESTED


def test_a_look_without_a_stake_costs_one_call_and_with_one_a_few(
    tmp_path: Path, job: OpenedJob, me: Wallet, judge: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    provider = type(job.ledger.web3.provider)
    make = provider.make_request

    def note(self: Any, method: Any, about: Any) -> Any:
        asked.append(method)
        return make(self, method, about)

    monkeypatch.setattr(provider, "make_request", note)
    watch, _ = watching(tmp_path, me)
    watch.look()
    asked.clear()
    watch.look()
    assert asked == ["eth_call"]
    stake(job, me, judge)
    look(watch)
    asked.clear()
    watch.look()
    assert asked.count("eth_getLogs") == 1
    assert len(asked) <= 5


MANY = 2 * AT_ONCE + 8


class ManyCases:
    """A chain's cases, each with its amount and stage; records the read and the contested ones, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.amounts = {"0x" + Hash(bytes([number]) * 32).hex(): number * 37 % 256 for number in range(1, MANY + 1)}
        self.stages = dict.fromkeys(self.amounts, "open")
        self.read: list[str] = []
        self.contested: list[str] = []
        accusations = [events.Accused(cases.parse_case_name(name), 1, Amount(1), SPEC) for name in self.amounts]
        staker = stakes.Staker(amount=AT_RISK, exposed=Amount(1))
        monkeypatch.setattr(accusation_watch.stakes, "staker", lambda *_: staker)
        monkeypatch.setattr(accusation_watch.events, "accused", lambda *_: accusations)
        monkeypatch.setattr(accusation_watch.cases, "fetch_case", self.fetch_case)
        monkeypatch.setattr(accusation_watch.cases, "contest_one", self.contest)

    def fetch_case(self, _ledger: Ledger, case: Hash) -> WalletCase:
        name = "0x" + case.hex()
        self.read.append(name)
        return WalletCase(1, 1, name, str(self.amounts[name]), self.stages[name], 0)

    def contest(self, _ledger: Ledger, _key: PrivateKey, name: str) -> None:
        self.contested.append(name)
        self.stages[name] = "contested"


def test_cases_that_wait_for_a_ruling_take_no_turn_of_those_not_contested(
    tmp_path: Path, me: Wallet, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = ManyCases(monkeypatch)
    watch, _ = watching(tmp_path, me)
    watch.look()
    assert set(chain.stages.values()) == {"contested"}
    assert chain.contested == sorted(chain.amounts, key=lambda name: -chain.amounts[name]), "the largest first"


def test_contested_cases_are_read_again_a_few_at_a_time_and_each_in_its_turn(
    tmp_path: Path, me: Wallet, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = ManyCases(monkeypatch)
    watch, _ = watching(tmp_path, me)
    watch.look()
    chain.stages = dict.fromkeys(chain.stages, "closed")
    for left in (MANY - AT_ONCE, MANY - 2 * AT_ONCE, 0):
        chain.read.clear()
        watch.look()
        assert (len(chain.read) <= AT_ONCE, watch.standing) == (True, left)


def test_contested_cases_that_stay_so_are_each_read_in_their_turn(
    tmp_path: Path, me: Wallet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without turns the first ones alone would be read, and the end of another never reported."""
    chain = ManyCases(monkeypatch)
    watch, _ = watching(tmp_path, me)
    watch.look()
    chain.read.clear()
    for _ in range(3):
        watch.look()
    assert (set(chain.read), len(chain.read)) == (set(chain.amounts), 3 * AT_ONCE)
