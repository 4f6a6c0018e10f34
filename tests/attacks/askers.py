"""A thousand free identities at one job: they ask for work, and do none of it; and uploads that are withheld."""

import asyncio
import secrets as chance
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache

import httpx
from eth_utils.address import to_checksum_address

from gradmarket.market.terms import Address
from gradmarket.market.wire import poll
from requester.store import identities
from requester.store.session import open_engine, sessions_of
from requester.store.work import begin_work
from tests.attacks.registry import Seen, attack
from tests.attacks.scene import PRICE, UNIT, Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST, Behaviour
from tests.patience import PATIENCE_S, pause

THOUSAND = 1000
ROUNDS = 24
QUICK = {"lease_s": 6, "wave_s": 5, "upload_s": 6}
"""Seconds that an unanswered place of a Sybil costs; an honest answer takes a fraction of a second."""
PATIENT = {"lease_s": 60, "wave_s": 5, "upload_s": 6}
ALONE = {"name": "fixed", "replicas": 1, "max_replicas": 1}
WITHHOLDER = Behaviour(uploads=False)
LONG = {"rounds": ROUNDS, "deadlines": QUICK, "budget": str(1_000 * UNIT)}


@cache
def crowd(scene: Scene) -> list[str]:
    """Bearer tokens of a thousand identities, each with a payout address of its own, that signed in a moment ago.

    Their rows are written past the door: a thousand sign-ins are another attack, and take the attacker a minute.
    """
    engine = open_engine(f"sqlite:///{scene.market.data / 'gradmarket.sqlite'}")
    now = time.time()
    with begin_work(sessions_of(engine)) as work:
        names = [Address(to_checksum_address(chance.token_bytes(20))) for _ in range(THOUSAND)]
        for name in names:
            identities.sign_in(work, name, name, None, now)
        work.flush()
        tokens = [identities.issue_token(work, "worker", name, now + 3600, now) for name in names]
    engine.dispose()
    return tokens


async def _poll(job: Posted, tokens: list[str], wait_s: float, over: threading.Event | None) -> None:
    """Each of them once, or until it is over."""
    said = poll.PollRequest(determinism_class="cpu", capacity=1, jobs=(job.id,), wait_s=wait_s)
    body = said.model_dump_json()

    async def lives(client: httpx.AsyncClient, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        while True:
            with suppress(httpx.TransportError):
                await client.post("/v1/work/poll", content=body, headers=headers)
            if over is None or over.is_set():
                return
            await pause(1.0)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=job.scene.url, timeout=PATIENCE_S, limits=limits, trust_env=False) as client:
        await asyncio.gather(*(lives(client, token) for token in tokens))


@contextmanager
def poll_meanwhile(job: Posted, tokens: list[str]) -> Iterator[None]:
    """They poll for ever, and answer nothing."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: asyncio.run(_poll(job, tokens, 10.0, over)))
        try:
            yield
        finally:
            over.set()
            done.result()


def locked(job: Posted, honest: list[ScriptedWorker]) -> int:
    """Gradients that lie reserved on-chain for others than the honest."""
    ledger = job.scene.ledger
    mine = sum(ledger.account(job.chain_job, worker.address).reserved for worker in honest)
    return (ledger.job(job.chain_job).reserved - mine) // PRICE


def timed(job: Posted, honest: list[ScriptedWorker]) -> float:
    began = time.monotonic()
    job.play(*honest)
    return time.monotonic() - began


def follow(job: Posted, workers: list[ScriptedWorker]) -> None:
    for worker in workers:
        worker.job, worker.held = job, {}


@cache
def undisturbed(scene: Scene) -> tuple[list[ScriptedWorker], float]:
    """Three honest workers, and how long they take; they have delivered then."""
    job = scene.post(**LONG)
    honest = job.team(HONEST, HONEST, HONEST)
    return honest, timed(job, honest)


def describe_outcome(job: Posted, honest: list[ScriptedWorker], alone: float, beside: float) -> Seen:
    """By counting, for a loaded machine is slow by itself: a round that waited for a Sybil counts as two."""
    waited = held_up(job, {worker.address for worker in honest})
    speed = "at least half" if waited <= ROUNDS // 2 else f"{ROUNDS / (ROUNDS + waited):.0%}"
    held = "a quarter of the deposit or less" if locked(job, honest) <= 25 else f"{locked(job, honest)} gradients"
    state, books = job.fetch_view()["state"], job.balanced()
    promised = sum(int(row["earned"]) for row in job.fetch_view("/workers?limit=200")["items"]) // UNIT
    pay = "honest" if sum(map(job.paid, honest)) == promised >= 2 * ROUNDS * PRICE else "not honest"
    words = f"speed kept: {speed}; {held} lies with them; all pay is {pay}; {state}; {books}"
    return Seen(words, {"rounds that waited for a Sybil": waited, "speed kept": alone / beside})


def held_up(job: Posted, honest: set[str]) -> int:
    """Rounds in which anybody else held a place."""
    tasks = job.fetch_view("/tasks?limit=200")["items"]
    rounds: Counter[int] = Counter()
    for task in tasks:
        replicas = job.fetch_view(f"/tasks/{task['id']}")["replicas"]
        rounds[task["round"]] += any(replica["worker"] not in honest for replica in replicas)
    return sum(1 for waited in rounds.values() if waited)


QUARTER = "a quarter of the deposit or less lies with them; all pay is honest; finished; books balanced"


@attack("Sybils hold a job's money", f"speed kept: at least half; {QUARTER}", alone=True)
def a_thousand_ask_once_and_are_gone(scene: Scene) -> Seen:
    """The honest are newcomers as they are, and come after them."""
    _, alone = undisturbed(scene)
    job = scene.post(**LONG)
    asyncio.run(_poll(job, crowd(scene), 0.05, None))
    honest = job.team(HONEST, HONEST, HONEST)
    beside = timed(job, honest)
    return describe_outcome(job, honest, alone, beside)


@attack("Sybils hold a job's money", f"speed kept: at least half; {QUARTER}", alone=True)
def a_thousand_ask_for_ever_and_commit_to_nothing(scene: Scene) -> Seen:
    honest, alone = undisturbed(scene)
    job = scene.post(**LONG)
    follow(job, honest)
    with poll_meanwhile(job, crowd(scene)):
        beside = timed(job, honest)
    return describe_outcome(job, honest, alone, beside)


@attack(
    "withheld payload",
    "paused: never; withholders withheld 0; honest payable 60; finished; books balanced",
    alone=True,
)
def ten_withholders_of_a_one_replica_job(scene: Scene) -> str:
    """Each of them in turn: unanswered attempts pause nothing, and a withholder waits longer each time."""
    first = scene.post(rounds=1, replication=ALONE)
    honest = first.scripted()
    first.play(honest)
    job = scene.post(rounds=6, replication=ALONE, deadlines=PATIENT)
    follow(job, [honest])
    withholders = job.team(*[WITHHOLDER] * 10)
    job.play(*withholders, honest)
    paused = "once" if "paused" in str(job.fetch_view("/rounds")) or job.fetch_view()["state"] == "paused" else "never"
    struck = [worker for worker in withholders if worker.held]
    return f"paused: {paused}; {job.seen(withholders=struck, honest=honest)}"
