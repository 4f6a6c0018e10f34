"""`gradmarket wallet stake | unstake | case`: put at risk under terms that the chain fixed, defended, and back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from contracts import calls, events, stakes
from contracts.ledger import Ledger
from contracts.local import LocalChain
from contracts.rpc import call_json_rpc
from contracts.transactions import execute_call, require_receipt
from gradmarket.cli import app
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Amount, Digest, Hash, Units
from gradmarket.market.wire.poll import hash_of
from tests.lanes import FULL
from tests.onchain import HOUR, NewKey, OpenedJob, with_money
from tests.worker.fake_market import FakeMarket, Server, app_of
from worker import durable, wallet

JOB, AMOUNT = "0123456789abcdef", 300
SPEC = {
    "name": "digits",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "step": {"kind": "gradient", "rows": 8},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 100,
    "replication": {"name": "fixed"},
    "price": "7",
}
TERMS = {"threshold": 2, "bond": "5", "slash_s": 1, "contest_s": HOUR, "decide_s": HOUR}
ON_CHAIN = (1, HOUR, HOUR, 5)
"""The same in the contract's form: windows to accuse workers that left, to contest and to decide; the bond in units."""
DAY, FOR_EVER = 24 * HOUR, 2**32 - 1
Windows = tuple[int, int, int, int]


@pytest.fixture
def judges(new_key: NewKey) -> list[PrivateKey]:
    return [new_key(), new_key()]


@pytest.fixture
def publication(blobs: dict[Digest, bytes], judges: list[PrivateKey]) -> Publication:
    named = [address_of(key) for key in judges]
    return published(blobs, stake={**TERMS, "validators": named}, audit={"probability": 0.5})


def published(blobs: dict[Digest, bytes], **spec: Any) -> Publication:
    document, parameters, _, manifest = blobs
    spec_ = JobSpec.model_validate(SPEC | spec)
    return Publication(
        job=JOB, spec=spec_, document=document, evaluation=None, parameters=parameters, manifest=manifest
    )


@pytest.fixture
def on_chain() -> Windows:
    return ON_CHAIN


@pytest.fixture
def chain_job(ledger: Ledger, new_key: NewKey, publication: Publication, on_chain: Windows) -> OpenedJob:
    return slashing(ledger, new_key, publication, on_chain)


def slashing(ledger: Ledger, new_key: NewKey, publication: Publication, windows: Windows) -> OpenedJob:
    requester, signer = with_money(ledger, new_key()), new_key()
    expiry = ledger.block().time + HOUR
    spec = hash_of(publication.digest)
    place = (Units(1000), Amount(1), expiry, expiry + HOUR, address_of(signer), spec)
    opening = calls.open_job(ledger.deployment.contract, calls.OpenJob(*place, *windows))
    (event,) = events.opened(ledger, require_receipt(execute_call(ledger.web3, requester, opening)))
    return OpenedJob(event.job, ledger, requester, signer, spec, expiry, expiry + HOUR)


@pytest.fixture
def market(fake_market: FakeMarket, anvil: LocalChain) -> Iterator[str]:
    with Server(app_of(fake_market, anvil.url)) as server:
        yield server.url


def run(data: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["wallet", *words, "--data", str(data), "--json"])


def shown(data: Path) -> list[dict[str, Any]]:
    return json.loads(run(data, "show").stdout)["stakes"]  # type: ignore[no-any-return]


def test_a_stake_is_put_at_risk_stays_locked_and_comes_back(
    tmp_path: Path, market: str, ledger: Ledger, judges: list[PrivateKey]
) -> None:
    me = wallet.create_wallet(tmp_path, None).address
    done = run(tmp_path, "stake", JOB, str(AMOUNT), "--market", market)
    assert done.exit_code == 0, done.output
    named = [address_of(key) for key in judges]
    assert all(name in done.stdout for name in named)
    (risk,) = shown(tmp_path)
    exposed = stakes.exposure(ledger, risk["chain_job"], me)
    assert (risk["at_risk"], exposed.at_risk) == (str(AMOUNT), AMOUNT)
    assert exposed.quorum == calls.quorum_of(named, 2)
    again = run(tmp_path, "stake", JOB, str(AMOUNT), "--market", market)
    assert again.exit_code == 2
    assert "already" in again.stderr
    left = run(tmp_path, "unstake")
    assert left.exit_code == 0, left.output
    assert shown(tmp_path)[0]["locked_until"] > 0
    assert ledger.balance(me) == 0
    call_json_rpc(ledger.web3, "evm_increaseTime", hex(3))
    call_json_rpc(ledger.web3, "evm_mine")
    assert run(tmp_path, "unstake").exit_code == 0
    assert ledger.balance(me) == AMOUNT
    assert shown(tmp_path) == []
    listed = run(tmp_path, "case", "list")
    assert (listed.exit_code, listed.stdout) == (0, ""), listed.output
    plain = CliRunner().invoke(app, ["wallet", "case", "list", "--data", str(tmp_path)])
    assert plain.stdout.startswith("There is no accusation against this wallet"), plain.output


def accused(tmp_path: Path, market: str, job: OpenedJob) -> str:
    """The worker has a stake in the job, and its requester accuses it; the case."""
    me = wallet.create_wallet(tmp_path, None).address
    assert run(tmp_path, "stake", JOB, str(AMOUNT), "--market", market).exit_code == 0
    with_money(job.ledger, job.requester)
    job.send(calls.accuse(job.market, job.id, me, Amount(AMOUNT), Hash(b"\x07" * 32)))
    listed = run(tmp_path, "case", "list")
    assert listed.exit_code == 0, listed.output
    (told,) = [json.loads(line) for line in listed.stdout.splitlines()]
    assert (told["stage"], told["amount"]) == ("open", str(AMOUNT))
    return str(told["case"])


def test_a_contested_case_is_decided_by_the_validators_that_agree(
    tmp_path: Path, market: str, chain_job: OpenedJob, judges: list[PrivateKey]
) -> None:
    case, folders = accused(tmp_path / "worker", market, chain_job), [tmp_path / "one", tmp_path / "two"]
    for folder, key in zip(folders, judges, strict=True):
        durable.write_file_atomically(folder / wallet.PLAIN, key.to_bytes().hex().encode())
    early = run(folders[0], "case", "rule", JOB, case, "--not-guilty", "--market", market)
    assert (early.exit_code, "is open" in early.stderr) == (2, True)
    assert run(tmp_path / "worker", "case", "contest").exit_code == 0
    assert run(tmp_path / "worker", "case", "contest", case).exit_code == 2
    own = run(tmp_path / "worker", "case", "rule", JOB, case, "--not-guilty", "--market", market)
    assert (own.exit_code, "not one of the job's validators" in own.stderr) == (2, True)
    first = json.loads(run(folders[0], "case", "rule", JOB, case, "--not-guilty", "--market", market).stdout)
    assert first["event"] == "ruled"
    words = ("case", "rule", JOB, case, "--market", market, "--ruling", first["ruling"])
    other = run(folders[1], *words, "--guilty")
    assert (other.exit_code, "not a validator's ruling" in other.stderr) == (2, True)
    done = json.loads(run(folders[1], *words, "--not-guilty").stdout)
    assert done["event"] == "decided"
    assert stakes.staker(chain_job.ledger, wallet.load_wallet(tmp_path / "worker", None).address).amount == AMOUNT


@FULL
def test_an_accusation_that_nothing_published_is_about_is_ruled_not_guilty(
    tmp_path: Path, market: str, chain_job: OpenedJob, judges: list[PrivateKey]
) -> None:
    """The accuser has to show its evidence; a case of another job, or none, is refused."""
    case, folder = accused(tmp_path / "worker", market, chain_job), tmp_path / "one"
    durable.write_file_atomically(folder / wallet.PLAIN, judges[0].to_bytes().hex().encode())
    assert run(tmp_path / "worker", "case", "contest").exit_code == 0
    done = run(folder, "case", "examine", JOB, case, "--market", market, "--rule")
    assert done.exit_code == 0, done.output
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["event"], line.get("guilty")) for line in told] == [("examined", False), ("ruled", None)]
    unknown = run(folder, "case", "examine", JOB, "0x" + "11" * 32, "--market", market)
    assert (unknown.exit_code, "is no case of job" in unknown.stderr) == (2, True)


def test_a_market_with_other_terms_than_the_chain_s_gets_no_stake(
    tmp_path: Path, fake_market: FakeMarket, anvil: LocalChain, blobs: dict[Digest, bytes], ledger: Ledger
) -> None:
    me = wallet.create_wallet(tmp_path, None).address
    friends = {**TERMS, "validators": ["0x" + "22" * 20], "threshold": 1}
    fake_market.publication = published(blobs, stake=friends, audit={"probability": 0.5})
    with Server(app_of(fake_market, anvil.url)) as server:
        refused = run(tmp_path, "stake", JOB, str(AMOUNT), "--market", server.url)
    assert refused.exit_code == 2
    assert "other terms" in refused.stderr
    assert stakes.staker(ledger, me).amount == 0


@pytest.mark.parametrize(
    ("on_chain", "name"),
    [
        ((FOR_EVER, HOUR, HOUR, 5), "accuse whoever left"),
        ((1, 60, HOUR, 5), "window to contest"),
        ((1, HOUR, FOR_EVER, 5), "window to decide"),
        ((1, HOUR, HOUR, 1), "bond"),
    ],
)
def test_terms_unlike_the_chain_s_get_no_stake(tmp_path: Path, market: str, ledger: Ledger, name: str) -> None:
    """Published is one thing, and the contract would do another: no transaction leaves."""
    me = wallet.create_wallet(tmp_path, None).address
    refused = run(tmp_path, "stake", JOB, str(AMOUNT), "--market", market)
    assert (refused.exit_code, name in refused.stderr) == (2, True), refused.stderr
    assert (stakes.staker(ledger, me).amount, ledger.balance(me), ledger.nonce(me)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("windows", "on_chain", "setting", "enough"),
    [
        ({"contest_s": 60}, (1, 60, HOUR, 5), "STAKE_CONTEST_S", "60"),
        ({"slash_s": 31 * DAY}, (31 * DAY, HOUR, HOUR, 5), "STAKE_LOCK_S", str(40 * DAY)),
    ],
)
def test_windows_beyond_what_the_owner_set_get_no_stake_until_it_agrees(
    tmp_path: Path, anvil: LocalChain, ledger: Ledger, new_key: NewKey, blobs: dict[Digest, bytes],
    judges: list[PrivateKey], monkeypatch: pytest.MonkeyPatch,
    windows: dict[str, int], on_chain: Windows, setting: str, enough: str,
) -> None:  # fmt: skip
    stake = {**TERMS, **windows, "validators": [address_of(key) for key in judges]}
    publication = published(blobs, stake=stake, audit={"probability": 0.5})
    job = slashing(ledger, new_key, publication, on_chain)
    me = wallet.create_wallet(tmp_path, None).address
    with Server(app_of(FakeMarket(job, publication, blobs), anvil.url)) as server:
        refused = run(tmp_path, "stake", JOB, str(AMOUNT), "--market", server.url)
        assert (refused.exit_code, setting in refused.stderr) == (2, True), refused.stderr
        assert stakes.staker(ledger, me).amount == 0
        monkeypatch.setenv(f"GRADMARKET_WORKER_{setting}", enough)
        assert run(tmp_path, "stake", JOB, str(AMOUNT), "--market", server.url).exit_code == 0
    assert stakes.staker(ledger, me).amount == AMOUNT


def test_a_job_without_stakes_takes_none(
    tmp_path: Path, fake_market: FakeMarket, anvil: LocalChain, blobs: dict[Digest, bytes]
) -> None:
    wallet.create_wallet(tmp_path, None)
    fake_market.publication = published(blobs)
    with Server(app_of(fake_market, anvil.url)) as server:
        refused = run(tmp_path, "stake", JOB, str(AMOUNT), "--market", server.url)
    assert (refused.exit_code, "takes no stakes" in refused.stderr) == (2, True)
