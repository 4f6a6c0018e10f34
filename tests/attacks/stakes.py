"""Requesters that want a worker's stake: terms that the contract lacks, and accusations of invented faults."""

from pathlib import Path
from tempfile import TemporaryDirectory

from contracts import calls, events, stakes
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.errors import MarketError
from gradmarket.market.job import JobSpec
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Amount, Hash, JobId, Units
from gradmarket.market.wire.poll import hash_of
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.attacks.victim import market
from tests.onchain import HOUR, OpenedJob, with_money
from tests.worker.fake_market import FakeMarket, Server, app_of
from worker.features.stakes.accusation_watch import AccusationWatch
from worker.features.stakes.stake import Bounds, Pledge, fetch_stake_offer
from worker.journal import Journal
from worker.money import known_chains
from worker.settings import WorkerSettings
from worker.wallet import Wallet

AT_RISK, BOND, WEEK = Amount(300), 5, 7 * 24 * HOUR
BOUNDS = Bounds(contest_s=HOUR, lock_s=30 * 24 * HOUR)


def slashing(scene: Scene, contest_s: int, slash_s: int) -> FakeMarket:
    """Publishes a week to contest and an hour to accuse leavers; opened on the chain with the given terms."""
    honest, ledger = market(scene), scene.ledger
    terms = {"validators": [address_of(scene.key())], "bond": str(BOND), "slash_s": HOUR, "contest_s": WEEK}
    spec = honest.publication.spec.model_dump(mode="json") | {"stake": terms, "audit": {"probability": 0.5}}
    publication = honest.publication.model_copy(update={"spec": JobSpec.model_validate(spec)})
    requester, signer = with_money(ledger, scene.key()), scene.key()
    expiry, digest = ledger.block().time + HOUR, hash_of(publication.digest)
    place = (Units(1000), Amount(1), expiry, expiry + HOUR, address_of(signer), digest)
    opening = calls.open_job(ledger.deployment.contract, calls.OpenJob(*place, slash_s, contest_s, 24 * HOUR, BOND))
    (event,) = events.opened(ledger, require_receipt(execute_call(ledger.web3, requester, opening)))
    job = OpenedJob(event.job, ledger, requester, signer, digest, expiry, expiry + HOUR)
    return FakeMarket(job, publication, honest.blobs)


def staked(scene: Scene, stranger: FakeMarket, wallet: Wallet) -> str:
    """The end of a stake, and the chain's balance of the worker."""
    rpc = str(scene.ledger.web3.provider.endpoint_uri)  # type: ignore[attr-defined]
    with Server(app_of(stranger, rpc)) as server:
        try:
            wanted = fetch_stake_offer(server.url, JobId(stranger.publication.job))
            Pledge(scene.ledger, wallet.key).put(wanted, AT_RISK, BOUNDS)
            said = "staked"
        except MarketError as error:
            said = f"refused: {str(error).split(': ')[1]}"
    return f"{said}; at stake {stakes.staker(scene.ledger, wallet.address).amount}"


@attack(
    "a stake under other terms than published",
    "refused: the market publishes a window to contest of 604800, and the chain has 60; at stake 0",
)
def a_week_to_contest_published_and_a_minute_on_the_chain(scene: Scene) -> str:
    return staked(scene, slashing(scene, 60, HOUR), Wallet(scene.rich(), Path("unused")))


@attack(
    "a stake under other terms than published",
    "refused: the market publishes a window to accuse whoever left of 3600, and the chain has 4294967295; at stake 0",
)
def a_stake_that_would_be_locked_for_ever(scene: Scene) -> str:
    return staked(scene, slashing(scene, WEEK, 2**32 - 1), Wallet(scene.rich(), Path("unused")))


@attack(
    "an accusation of what never was",
    "staked; at stake 300; accused, contested by itself; at stake 300 of 300, the requester's bond is down",
)
def accused_of_an_answer_that_it_never_gave(scene: Scene) -> str:
    """The worker's own watch contests; from then on the validators decide, and their silence acquits."""
    stranger, wallet = slashing(scene, WEEK, HOUR), Wallet(scene.rich(), Path("unused"))
    said, job, event = staked(scene, stranger, wallet), stranger.job, Hash(b"\x07" * 32)
    with_money(scene.ledger, job.requester)
    job.send(calls.accuse(job.market, job.id, wallet.address, AT_RISK, event))
    with TemporaryDirectory() as folder, (Path(folder) / "journal").open("w") as journal:
        known_chains.store_chain_facts(Path(folder), stranger.facts(str(scene.ledger.web3.provider.endpoint_uri)))  # type: ignore[attr-defined]
        watch = AccusationWatch.of_wallet(WorkerSettings(data=Path(folder)), wallet, Journal(stream=journal))
        while not watch.look():
            continue
    case = stakes.case(scene.ledger, calls.case_id(job.id, wallet.address, event))
    fate = "contested by itself" if case.stage == stakes.CaseStage.CONTESTED else case.stage.name.lower()
    left = stakes.staker(scene.ledger, wallet.address).amount
    bond = "is down" if case.bond == BOND else "is not"
    return f"{said}; accused, {fate}; at stake {left} of {AT_RISK}, the requester's bond {bond}"
