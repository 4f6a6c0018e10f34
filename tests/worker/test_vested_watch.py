"""A worker without a stake, accused about locked pay: its watch and its watcher see the case and collect free pay."""

import json
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from contracts import calls, claims, events
from contracts.ledger import Ledger
from contracts.stakes import CaseStage
from contracts.transactions import execute_call, require_receipt
from gradmarket.cli import app
from gradmarket.market.messages import Ruling
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Amount, Hash, Units
from gradmarket.market.wire.sign_in import ChainFacts
from tests.kit.contract_calls import to_burn
from tests.lanes import FULL
from tests.onchain import HOUR, NewKey, OpenedJob, with_money
from tests.worker.test_watchtower import EARNED, Scene, list_event_names
from worker import wallet
from worker.features.stakes import accusation_watch
from worker.features.stakes.accusation_watch import AccusationWatch
from worker.journal import Journal
from worker.money import known_chains
from worker.settings import WorkerSettings

VEST, BOND, WINDOW = 16, 5, 24 * HOUR
EVENT, SPEC = Hash(b"\x0e" * 32), Hash(b"\x05" * 32)


@dataclass
class VestedScene(Scene):
    """A worker without a stake, which redeemed 40 units of a job whose last 16 vest."""

    @property
    def case(self) -> Hash:
        return calls.vested_case_id(self.job.id, self.me, EVENT)

    def accuse(self) -> Hash:
        self.job.send(calls.accuse_vested(self.job.market, self.job.id, self.me, Units(VEST), EVENT))
        return self.case

    def rule(self, guilty: bool) -> None:
        ruling = Ruling(self.case, Amount(VEST), guilty)
        signed = sign_digest(self.judge, digest_struct(self.ledger.domain(), ruling))
        self.job.send(calls.decide(self.job.market, self.case, guilty, [address_of(self.judge)], 1, [signed]))

    def look(self) -> list[tuple[str, str]]:
        """Returns the lines of the worker's own watch."""
        said = StringIO()
        AccusationWatch.of_wallet(
            WorkerSettings(data=self.home), wallet.load_wallet(self.home, None), Journal(True, said)
        ).look()
        return [(one["event"], one["text"]) for one in map(json.loads, said.getvalue().splitlines())]

    def run(self, *words: str) -> str:
        return CliRunner().invoke(app, ["wallet", *words, "--data", str(self.home)]).output


@pytest.fixture
def scene(own_ledger: Ledger, new_key: NewKey, tmp_path: Path) -> VestedScene:
    ledger, judge = own_ledger, new_key()
    requester, signer = with_money(ledger, new_key()), new_key()
    expiry = ledger.block().time + 4 * HOUR
    terms = calls.OpenJob(
        Units(1000), Amount(1), expiry, expiry + 4 * HOUR, address_of(signer), SPEC, decision_window=HOUR, bond=BOND
    )
    quorum = calls.quorum_of([address_of(judge)], 1)
    terms = replace(terms, vest=Units(VEST), vest_window=WINDOW, vest_quorum=quorum)
    opening = calls.open_job(ledger.deployment.contract, terms)
    (event,) = events.opened(ledger, require_receipt(execute_call(ledger.web3, requester, opening)))
    job = OpenedJob(event.job, ledger, requester, signer, SPEC, expiry, expiry + 4 * HOUR)
    made = VestedScene(job, judge, wallet.create_wallet(tmp_path / "worker", None).key, tmp_path)
    wallet.create_wallet(made.tower, None)
    deployed = asdict(ledger.deployment) | {"signer": address_of(signer), "rpc": made.rpc, "unit": "1"}
    facts = ChainFacts.model_validate(deployed | {"symbol": "GRAD", "decimals": ledger.decimals()})
    known_chains.store_chain_facts(made.home, facts)
    with_money(ledger, made.worker, 0)
    job.reserve((made.me, 100))
    made.earn(EARNED)
    redeem(made, made.worker)
    return made


def redeem(scene: VestedScene, key: PrivateKey) -> None:
    voucher, signature = scene.job.voucher(scene.me, EARNED)
    require_receipt(claims.redeem(scene.ledger, key, voucher, signature))


@FULL
def test_a_case_about_locked_pay_is_reported_to_the_worker_which_sends_nothing(scene: VestedScene) -> None:
    assert scene.look() == [], "nobody accuses it"
    sent = scene.ledger.nonce(scene.me)
    scene.accuse()
    ((event, text),) = scene.look()
    assert event == "accused"
    assert "of its locked pay in job" in text
    assert scene.look() == [], "nothing twice"
    assert scene.ledger.nonce(scene.me) == sent, "silence burns nothing, so that it saves the gas"
    scene.rule(guilty=False)
    ((event, text),) = scene.look()
    assert (event, text.partition(":")[0]) == ("accused", "An accusation is over")
    assert "of its locked pay" in text


def test_a_case_about_locked_pay_has_nothing_to_contest(scene: VestedScene) -> None:
    case = "0x" + scene.accuse().hex()
    said = scene.run("case", "contest", case)
    assert "is about locked pay: there is nothing to contest" in said
    assert "what they leave undecided is paid" in said
    assert scene.stage(scene.case) == CaseStage.VESTED


def test_a_later_stake_forgets_no_case_about_locked_pay(scene: VestedScene) -> None:
    scene.accuse()
    assert len(scene.look()) == 1
    settings = WorkerSettings(data=scene.home)
    (facts,) = known_chains.list_known_chains(scene.home)
    accusation_watch.skip_earlier_blocks(scene.home, facts, scene.ledger, scene.me)
    assert accusation_watch.count_open_cases(settings) == 1


def test_a_watcher_collects_what_an_acquittal_frees_though_the_worker_is_offline(scene: VestedScene) -> None:
    assert scene.export().exit_code == 0
    assert list_event_names(scene.watch()) == ["watching"]
    scene.accuse()
    done = scene.watch()
    assert (done.exit_code, list_event_names(done)) == (0, ["accused", "watching"]), done.output
    assert scene.stage(scene.case) == CaseStage.VESTED, "a case about locked pay has nothing to contest"
    scene.pass_time(HOUR + 60)
    scene.job.send(calls.close_case(scene.job.market, scene.case))
    scene.pass_time(WINDOW)
    assert scene.paid() == EARNED - VEST
    done = scene.watch()
    assert done.exit_code == 0, done.output
    assert scene.paid() == EARNED


@FULL
def test_a_watcher_saves_nothing_of_what_validators_burnt(scene: VestedScene) -> None:
    """The cheating twin."""
    assert scene.export().exit_code == 0
    assert scene.watch().exit_code == 0
    scene.accuse()
    scene.rule(guilty=True)
    scene.pass_time(WINDOW + 60)
    done = scene.watch()
    assert (done.exit_code, scene.paid()) == (0, EARNED - VEST), done.output
    assert to_burn(scene.ledger) == VEST


@FULL
def test_the_wallet_shows_locked_pay_until_it_is_collected(scene: VestedScene) -> None:
    assert "locked: 0.000000000000000016 GRAD of a until" in scene.run("show")
    scene.accuse()
    scene.pass_time(WINDOW + 60)
    shown = scene.run("show")
    assert "of a until its validators rule" in shown
    assert "ACCUSED: 16 of the smallest unit" in shown
    assert "of its locked pay: validators rule until" in shown
    scene.job.send(calls.close_case(scene.job.market, scene.case))
    assert "locked:" not in scene.run("show")
