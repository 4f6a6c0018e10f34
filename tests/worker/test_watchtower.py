"""`gradmarket wallet export-watch` and `wallet watch`: a worker that is offline loses neither its stake nor its pay."""

import json
import shutil
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from contracts import calls, claims, events, stakes
from contracts.ledger import Ledger
from contracts.rpc import call_json_rpc
from contracts.stakes import CaseStage
from contracts.transactions import execute_call, require_receipt
from gradmarket.cli import app
from gradmarket.market.messages import Payout, Release, Ruling, Voucher
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Amount, Hash, JobId, Units
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network.chain_errors import ContractRefused
from tests.kit.contract_calls import release_for
from tests.lanes import FULL, leave_to_full
from tests.onchain import HOUR, NewKey, OpenedJob, with_money
from tests.patience import wait_until
from worker import wallet
from worker.features.watchtower import export_sync, watch_export
from worker.features.watchtower.export_sync import ExportSync
from worker.features.watchtower.watched_workers import Watchtower
from worker.journal import Journal
from worker.money import known_chains
from worker.money.account_store import AccountStore, JobAccount
from worker.protocol import records
from worker.settings import WorkerSettings

AT_RISK, ACCUSED, EARNED, EVENT, SPEC = Amount(300), Amount(100), 40, Hash(b"\x07" * 32), Hash(b"\x05" * 32)
NEW_PAYOUT = Address("0x000000000000000000000000000000000000bEEF")


@dataclass
class Scene:
    """An offline worker with a stake and a voucher, and its watcher: a folder each, and the export between them."""

    job: OpenedJob
    judge: PrivateKey
    worker: PrivateKey
    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "worker"

    @property
    def tower(self) -> Path:
        return self.folder / "tower"

    @property
    def exported(self) -> Path:
        return self.folder / "exported"

    @property
    def me(self) -> Address:
        return address_of(self.worker)

    @property
    def ledger(self) -> Ledger:
        return self.job.ledger

    @property
    def rpc(self) -> str:
        return str(self.ledger.web3.provider.endpoint_uri)  # type: ignore[attr-defined]

    @property
    def watcher(self) -> wallet.Wallet:
        return wallet.load_wallet(self.tower, None)

    def earn(self, cumulative: int, signer: PrivateKey | None = None) -> None:
        """Takes a voucher; forged where another signs than the job's signer."""
        store = AccountStore(self.home / "book.json")
        place = self.ledger.deployment
        names = {"chain_id": place.chain_id, "contract": place.contract, "instance": place.instance}
        signing = signer or self.job.signer
        terms = {"chain_job": self.job.id, "job": JobId("a"), "signer": address_of(signing), "unit": Amount(1)}
        store.record_offer(JobAccount.model_validate(names | terms))
        voucher, _ = self.job.voucher(self.me, cumulative)
        signature = sign_digest(signing, digest_struct(self.ledger.domain(), voucher))
        store.take(store.account(self.ledger.domain(), self.job.id), voucher, signature, Units(0))
        store.save()

    def export(self, *words: str) -> Any:
        line = ["wallet", "export-watch", str(self.exported), "--watcher", self.watcher.address, *words]
        return CliRunner().invoke(app, [*line, "--data", str(self.home)])

    def watch(self, *words: str) -> Any:
        line = ["wallet", "watch", str(self.exported), "--once", "--json", *words]
        return CliRunner().invoke(app, [*line, "--data", str(self.tower)])

    def exported_units(self) -> int:
        return sum(one.vouchered for one in watch_export.read_export(self.exported, self.watcher.address).accounts)

    def accuse(self) -> Hash:
        self.job.send(calls.accuse(self.job.market, self.job.id, self.me, ACCUSED, EVENT))
        return calls.case_id(self.job.id, self.me, EVENT)

    def acquit(self, case: Hash) -> None:
        ruling = sign_digest(self.judge, digest_struct(self.ledger.domain(), Ruling(case, ACCUSED, False)))
        self.job.send(calls.decide(self.job.market, case, False, [address_of(self.judge)], 1, [ruling]))

    def stage(self, case: Hash) -> CaseStage:
        return stakes.case(self.ledger, case).stage

    def pass_time(self, seconds: int) -> None:
        call_json_rpc(self.ledger.web3, "evm_increaseTime", hex(seconds))
        call_json_rpc(self.ledger.web3, "evm_mine")

    def paid(self, to: Address | None = None) -> int:
        return self.ledger.balance(to or self.me)


def list_event_names(done: Any) -> list[str]:
    return [json.loads(line)["event"] for line in done.stdout.splitlines()]


@pytest.fixture
def scene(own_ledger: Ledger, new_key: NewKey, tmp_path: Path) -> Scene:
    ledger, judge = own_ledger, new_key()
    requester, signer = with_money(ledger, new_key()), new_key()
    expiry = ledger.block().time + 4 * HOUR
    place = (Units(1000), Amount(1), expiry, expiry + 4 * HOUR, address_of(signer), SPEC)
    opening = calls.open_job(ledger.deployment.contract, calls.OpenJob(*place, 1, HOUR, HOUR, 5))
    (event,) = events.opened(ledger, require_receipt(execute_call(ledger.web3, requester, opening)))
    job = OpenedJob(event.job, ledger, requester, signer, SPEC, expiry, expiry + 4 * HOUR)
    made = Scene(job, judge, wallet.create_wallet(tmp_path / "worker", None).key, tmp_path)
    wallet.create_wallet(made.tower, None)
    deployed = asdict(ledger.deployment) | {"signer": address_of(signer), "rpc": made.rpc, "unit": "1"}
    facts = ChainFacts.model_validate(deployed | {"symbol": "GRAD", "decimals": ledger.decimals()})
    known_chains.store_chain_facts(made.home, facts)
    with_money(ledger, made.worker, AT_RISK)
    quorum = calls.quorum_of([address_of(judge)], 1)
    for call in (calls.stake(job.market, AT_RISK), calls.join_job(job.market, job.id, AT_RISK, quorum)):
        job.send(call, made.worker)
    job.reserve((made.me, 100))
    made.earn(EARNED)
    return made


def test_an_offline_worker_s_watcher_contests_wins_and_redeems_before_claims_end(scene: Scene) -> None:
    done = scene.export()
    assert done.exit_code == 0, done.output
    assert scene.worker.to_bytes().hex() not in "".join(p.read_text() for p in scene.exported.rglob("*.json*"))
    shutil.rmtree(scene.home)
    case = scene.accuse()
    done = scene.watch()
    assert (done.exit_code, list_event_names(done)) == (0, ["accused", "contested", "watching"]), done.output
    assert (scene.stage(case), scene.paid()) == (CaseStage.CONTESTED, 0), "the voucher can wait for more"
    scene.acquit(case)
    scene.pass_time(7 * HOUR + 60)
    done = scene.watch()
    assert (done.exit_code, list_event_names(done)) == (0, ["accused", "redeemed", "watching"]), done.output
    assert scene.paid() == EARNED
    assert stakes.staker(scene.ledger, scene.me).amount == AT_RISK
    assert list_event_names(scene.watch()) == ["watching"], "nothing twice"


@FULL
def test_without_a_watcher_the_same_accusation_slashes_and_the_voucher_dies(scene: Scene) -> None:
    case = scene.accuse()
    scene.pass_time(HOUR + 2)
    scene.job.send(calls.close_case(scene.job.market, case))
    assert stakes.staker(scene.ledger, scene.me).amount == AT_RISK - ACCUSED
    assert scene.export().exit_code == 0
    scene.pass_time(8 * HOUR)
    done = scene.watch()
    assert (done.exit_code, scene.paid()) == (0, 0)
    assert list_event_names(done).count("voucher_lost") == 1
    assert "voucher_lost" not in list_event_names(scene.watch())


def test_a_watcher_s_export_moves_no_money_elsewhere_and_takes_no_stake(scene: Scene) -> None:
    """The cheating twin: every move of the contract that a thief would want, by the watcher's key and its export."""
    assert scene.export().exit_code == 0
    thief, place = with_money(scene.ledger, scene.watcher.key), scene.job.market
    export = watch_export.read_export(scene.exported, address_of(thief))
    (mandate,) = (chain.mandate for chain in export.chains)
    (account,) = export.accounts
    assert account.signature is not None
    own = address_of(thief)
    stolen = [
        calls.set_payout_for(place, Payout(scene.me, own, 0), mandate),
        release_for(place, Release(scene.job.id, scene.me, Units(0), 0), mandate),
        calls.redeem(place, Voucher(scene.job.id, own, Units(EARNED)), account.signature),
        calls.redeem(place, Voucher(scene.job.id, scene.me, Units(EARNED + 1)), account.signature),
        calls.leave_job(place, scene.job.id),
        calls.unstake(place, AT_RISK),
    ]
    for call in stolen:
        with pytest.raises(ContractRefused):
            require_receipt(execute_call(scene.ledger.web3, thief, call))
    before = scene.paid(own)
    require_receipt(claims.redeem(scene.ledger, thief, account.voucher(scene.me), account.signature))
    assert (scene.paid(own), scene.paid()) == (before, EARNED), "whoever sends it, the worker is paid"
    assert stakes.staker(scene.ledger, scene.me).amount == AT_RISK


def test_another_key_s_mandate_contests_nothing(scene: Scene, new_key: NewKey) -> None:
    assert scene.export().exit_code == 0
    (chain,) = watch_export.read_export(scene.exported, scene.watcher.address).chains
    case, stranger = scene.accuse(), with_money(scene.ledger, new_key())
    with pytest.raises(ContractRefused, match="BadSignature"):
        require_receipt(
            execute_call(scene.ledger.web3, stranger, calls.contest_for(scene.job.market, case, chain.mandate))
        )
    assert scene.stage(case) == CaseStage.OPEN


def test_the_payout_that_the_worker_signed_is_named_once_and_only_that(scene: Scene) -> None:
    done = scene.export("--payout", NEW_PAYOUT)
    assert done.exit_code == 0, done.output
    scene.pass_time(7 * HOUR + 60)
    done = scene.watch()
    assert (done.exit_code, scene.paid(), scene.paid(NEW_PAYOUT)) == (0, 0, EARNED), done.output
    scene.job.send(calls.set_payout(scene.job.market, scene.me), scene.worker)
    scene.earn(EARNED + 5)
    shutil.copy(scene.home / "book.json", scene.folder / "newer.json")
    (scene.exported / "watch.json").write_text(
        watch_export.read_export(scene.exported, scene.watcher.address)
        .model_copy(update={"accounts": AccountStore(scene.folder / "newer.json").accounts})
        .model_dump_json()
    )
    assert scene.watch().exit_code == 0
    assert scene.paid() == 5, "the worker has changed it since"


@FULL
def test_a_watcher_that_begins_anew_loses_nothing_though_the_export_is_gone(scene: Scene) -> None:
    assert scene.export().exit_code == 0
    assert scene.watch().exit_code == 0
    shutil.rmtree(scene.exported)
    case = scene.accuse()
    scene.pass_time(60)
    done = scene.watch()
    assert list_event_names(done) == ["watch_unread", "accused", "contested", "watching"]
    assert (done.exit_code, scene.stage(case)) == (1, CaseStage.CONTESTED), "it tells that the export is not read"
    scene.pass_time(7 * HOUR)
    assert "redeemed" in list_event_names(scene.watch())
    assert scene.paid() == EARNED


def test_a_forged_voucher_displaces_no_true_one(scene: Scene, new_key: NewKey) -> None:
    scene.earn(EARNED + 50, new_key())
    assert scene.export().exit_code == 0
    done = scene.watch()
    assert done.exit_code == 1
    assert "is left out: it is not signed by the job's signer" in done.output
    (scene.home / "book.json").unlink()
    scene.earn(EARNED)
    assert scene.export().exit_code == 0
    scene.pass_time(7 * HOUR + 60)
    assert scene.watch().exit_code == 0
    assert scene.paid() == EARNED


@FULL
@pytest.mark.parametrize("chain_job", leave_to_full([-1, 2**256]))
def test_a_voucher_of_a_job_that_no_contract_can_have_stops_no_tower(scene: Scene, chain_job: int) -> None:
    """One tower may watch over many, and one of these may name anything: the others' accounts are still watched."""
    assert scene.export().exit_code == 0
    assert scene.watch().exit_code == 0
    index = scene.exported / "watch.json"
    told = json.loads(index.read_bytes())
    told["accounts"] += [told["accounts"][0] | {"chain_job": chain_job, "signature": "0x" + "11" * 65}]
    index.write_text(json.dumps(told))
    scene.pass_time(7 * HOUR + 60)
    said = scene.watch().output
    assert "is no export" in said
    assert "chain_job" in said
    assert scene.paid() == EARNED


@FULL
def test_an_older_export_takes_no_voucher_away(scene: Scene) -> None:
    assert scene.export().exit_code == 0
    older = (scene.exported / "watch.json").read_bytes()
    scene.earn(EARNED + 20)
    assert scene.export().exit_code == 0
    assert scene.watch().exit_code == 0
    (scene.exported / "watch.json").write_bytes(older)
    scene.pass_time(7 * HOUR + 60)
    assert scene.watch().exit_code == 0
    assert scene.paid() == EARNED + 20


def test_a_running_worker_renews_the_export_where_its_vouchers_grow(scene: Scene) -> None:
    assert scene.export().exit_code == 0
    settings = WorkerSettings.model_validate({"data": scene.home, "upkeep_s": 0.01})
    said = StringIO()
    with ExportSync(settings, wallet.load_wallet(scene.home, None), Journal(True, said)).running() as sync:
        scene.earn(EARNED + 20)
        wait_until(lambda: scene.exported_units() == EARNED + 20)
        records_of = records.file_of(scene.home, Hash(scene.ledger.deployment.instance), scene.job.id)
        records_of.parent.mkdir()
        records_of.write_text("{}\n")
        copied = scene.exported / "records" / records_of.name
        wait_until(copied.is_file)
        note = scene.folder / "note"
        note.write_text("a file")
        export_sync.store_target(scene.home, note / "exported", scene.watcher.address)
        wait_until(lambda: "is not up to date" in said.getvalue())
        export_sync.store_target(scene.home, scene.folder / "another", scene.watcher.address)
        wait_until((scene.folder / "another" / "watch.json").is_file)
        sync.sync()


def test_a_worker_without_a_watcher_exports_nothing(scene: Scene) -> None:
    ExportSync(WorkerSettings(data=scene.home), wallet.load_wallet(scene.home, None), Journal()).sync()
    assert export_sync.load_target(scene.home) is None
    assert not scene.exported.exists()


@FULL
def test_a_full_disk_or_a_damaged_copy_keeps_no_case_uncontested(scene: Scene) -> None:
    assert scene.export().exit_code == 0
    case = scene.accuse()
    copy = scene.tower / "watched" / scene.me
    copy.mkdir(parents=True)
    (copy / "book.json").write_text("{")
    full = Path("/dev/full").open("w")  # noqa: SIM115
    tower = Watchtower(WorkerSettings(data=scene.tower), scene.watcher, [scene.exported], Journal(True, full))
    tower.look()
    shutil.rmtree(scene.exported)
    for _ in range(3):
        tower.look()
    with suppress(OSError):
        full.close()
    assert (scene.stage(case), tower.troubled) == (CaseStage.CONTESTED, True)


@FULL
def test_the_tower_looks_until_it_is_over(scene: Scene) -> None:
    assert scene.export().exit_code == 0
    over, case = threading.Event(), scene.accuse()
    settings = WorkerSettings.model_validate({"data": scene.tower, "watch_s": 0.05})
    tower = Watchtower(settings, scene.watcher, [scene.exported], Journal(True, StringIO()))
    looking = threading.Thread(target=tower.run, args=(over,))
    looking.start()
    wait_until(lambda: scene.stage(case) == CaseStage.CONTESTED)
    over.set()
    looking.join()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--watcher", "me"], "is this worker's own key"),
        (["--watcher", "0x12"], "0x12"),
        (["--watcher", "0x" + "00" * 20], "the zero address has no owner"),
        (["--payout", "bob"], "bob"),
    ],
)
def test_a_mistake_in_an_export_is_one_sentence(scene: Scene, words: list[str], sentence: str) -> None:
    done = scene.export(*[scene.me if word == "me" else word for word in words])
    assert (done.exit_code, sentence in done.stderr, "Traceback" in done.output) == (2, True, False), done.output
    assert not (scene.exported / "watch.json").exists()


def test_a_wrong_folder_is_refused_by_its_name(scene: Scene) -> None:
    (scene.folder / "note").write_text("x")
    for folder, sentence in ((scene.folder / "note", "is a file"), (scene.home, "has the worker's key")):
        line = ["wallet", "export-watch", str(folder), "--watcher", scene.watcher.address, "--data", str(scene.home)]
        done = CliRunner().invoke(app, line)
        assert (done.exit_code, sentence in done.stderr) == (2, True), done.output


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read"),
        ("{", "is no export"),
        ('{"format": "gradmarket-watch/9"}', "is no export"),
    ],
)
def test_a_damaged_export_is_a_sentence_and_watches_over_nobody(scene: Scene, text: str | None, sentence: str) -> None:
    assert scene.export().exit_code == 0
    index = scene.exported / "watch.json"
    index.unlink()
    if text is not None:
        index.write_text(text)
    done = scene.watch()
    assert done.exit_code == 2, done.output
    assert sentence in done.output
    assert "so it has no worker to watch" in done.stderr


def test_an_export_for_another_watcher_or_with_another_s_mandate_is_refused(scene: Scene, new_key: NewKey) -> None:
    assert scene.export().exit_code == 0
    index = scene.exported / "watch.json"
    export = watch_export.read_export(scene.exported, scene.watcher.address)
    (chain,) = export.chains
    forged = chain.model_copy(update={"mandate": sign_digest(new_key(), Hash(b"\1" * 32))})
    for change, sentence in (
        ({"watcher": scene.me}, "is for the watcher"),
        ({"chains": (forged,)}, "a mandate is not signed by"),
    ):
        index.write_text(export.model_copy(update=change).model_dump_json())
        done = scene.watch()
        assert (done.exit_code, sentence in done.output) == (2, True), done.output
