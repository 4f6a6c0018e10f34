"""Floods from one stranger's address while a job goes on: they are refused, and everybody is paid.

Each comes from a loopback address of its own, that has the limits of every other; only 127.0.0.1 has none (scene).
"""

import base64
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import psutil

from tests.attacks.registry import attack
from tests.attacks.scene import Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST
from tests.patience import PATIENCE_S

BUSY = (429, 503)
MOST = 2_000
"""Requests of a flooder, if none were refused."""
HALF = "\ud800"
FLOODERS = 8


def stranger(scene: Scene, number: int, **headers: str) -> httpx.Client:
    """From an address that no other attack has used up the allowance of."""
    transport = httpx.HTTPTransport(local_address=f"127.0.0.{number}")
    return httpx.Client(base_url=scene.url, transport=transport, headers=headers, timeout=PATIENCE_S)


def flooded(job: Posted, ask: Callable[[httpx.Client], httpx.Response], clients: list[httpx.Client]) -> str:
    """The job is played while each client asks again and again, and until one is refused; how that went."""
    over, seen = threading.Event(), Counter[bool]()
    workers = job.team(HONEST, HONEST, HONEST)

    def flood(client: httpx.Client) -> None:
        for _ in range(MOST):
            answer = ask(client)
            assert answer.status_code < 500 or answer.status_code in BUSY, answer.text
            seen[answer.status_code in BUSY] += 1
            if over.is_set() and seen[True]:
                break

    with ThreadPoolExecutor(len(clients)) as pool:
        floods = [pool.submit(flood, client) for client in clients]
        job.play(*workers)
        over.set()
        for each in floods:
            each.result()
    served_, refused = "some" if seen[False] else "none", "refused" if seen[True] else "none refused"
    return f"{served_} served, then {refused}; {job.seen(worker=workers)}"


PAID = "worker payable 10; finished; books balanced"


@attack("slow sign-in letters", f"letters 422+429; less than a second of CPU each; {PAID}")
def four_thousand_letters_that_nobody_reads(scene: Scene) -> str:
    """siwe's grammar takes 5 to 13 s for each of them: forty stopped the service for as long as they came."""
    job, process = scene.post(), psutil.Process(scene.market.process.pid)
    workers, before = job.team(HONEST, HONEST, HONEST), process.cpu_times().user
    letters = {"message": "a" * 4000, "signature": "0x" + "00" * 65}
    with stranger(scene, 2) as client, ThreadPoolExecutor(FLOODERS) as pool:
        found = [pool.submit(client.post, "/v1/session", json=letters) for _ in range(40)]
        job.play(*workers)
        told = "+".join(map(str, sorted({answer.result().status_code for answer in found})))
    each = (process.cpu_times().user - before) / len(found)
    words = "less than a second" if each < 1 else f"{each:.0f} s"
    return f"letters {told}; {words} of CPU each; {job.seen(worker=workers)}"


@attack("ledger flood", f"some served, then refused; {PAID}", alone=True)
def the_ledger_over_and_over(scene: Scene) -> str:
    job = scene.post()
    with stranger(scene, 3) as client:
        return flooded(job, lambda client: client.get(f"/v1/jobs/{job.id}/ledger"), [client] * FLOODERS)


@attack("nonce flood", f"some served, then refused; {PAID}; nonces written down 3", alone=True)
def nonces_without_end(scene: Scene) -> str:
    """Only the three that valid signatures used are in the database."""
    before = _nonces(scene)
    with stranger(scene, 4) as client:
        seen = flooded(scene.post(), lambda client: client.get("/v1/session/nonce"), [client] * FLOODERS)
    return f"{seen}; nonces written down {_nonces(scene) - before}"


def _nonces(scene: Scene) -> int:
    with sqlite3.connect(scene.market.data / "gradmarket.sqlite") as database:
        (written,) = database.execute("SELECT count(*) FROM nonces").fetchone()
    return int(written)


@attack("poll flood", f"some served, then refused; {PAID}", alone=True)
def eight_wallets_that_poll_three_times_each(scene: Scene) -> str:
    """Wallets are free: all unpaid ones share their address's allowance."""
    job, said = scene.post(), {"determinism_class": "cpu", "capacity": 0, "wait_s": 0}
    with ExitStack() as stack:
        tokens = [ScriptedWorker(job).http.headers["Authorization"] for _ in range(8)]
        pollers = [stack.enter_context(stranger(scene, 5, Authorization=token)) for token in tokens * 3]
        return flooded(job, lambda client: client.post("/v1/work/poll", json=said), pollers)


@attack("SSE crowd", f"streams 16 of 60; {PAID}", alone=True)
def sixty_streams_of_events(scene: Scene) -> str:
    job, crowd = scene.post(), 60
    with ExitStack() as stack, stranger(scene, 6) as client:
        with ThreadPoolExecutor(crowd) as pool:
            asked = client.build_request("GET", f"/v1/jobs/{job.id}/events")
            streams = list(pool.map(lambda _: client.send(asked, stream=True), range(crowd)))
        for stream in streams:
            stack.callback(stream.close)
        workers = job.team(HONEST, HONEST, HONEST)
        job.play(*workers)
        followed = sum(stream.status_code == 200 for stream in streams)
        return f"streams {followed} of {len(streams)}; {job.seen(worker=workers)}"


@attack(
    "proxy without trusted_proxies",
    "some served, then refused; the log says so once; without the proxy 200",
    alone=True,
)
def everybody_through_a_proxy_that_nobody_named(scene: Scene) -> str:
    with stranger(scene, 1, **{"X-Forwarded-For": "192.0.2.1"}) as client, ThreadPoolExecutor(FLOODERS) as pool:
        found = [answer.status_code for answer in pool.map(lambda _: client.get("/v1/health"), range(260))]
    served = "some" if found.count(200) >= 100 else "few"
    refused = "refused" if 429 in found else "none refused"
    told = len(scene.market.list_events("a proxy is not trusted"))
    alone = scene.market.http().get("/v1/health").status_code
    often = "once" if told == 1 else f"{told} times"
    return f"{served} served, then {refused}; the log says so {often}; without the proxy {alone}"


@attack("surrogate cursor", f"cursors 422; poll 422; bodies 422; {PAID}")
def half_a_surrogate_pair_everywhere(scene: Scene) -> str:
    job = scene.post()
    workers = job.team(HONEST, HONEST, HONEST)
    cursor = base64.urlsafe_b64encode(json.dumps([HALF]).encode()).decode().rstrip("=")
    lists = ("rounds", "verdicts", "workers", "payments", "audits")
    cursors = {
        scene.requester.get(f"/v1/jobs/{job.id}/{name}", params={"cursor": cursor}).status_code for name in lists
    }
    kind = {"Content-Type": "application/json"}
    known = json.dumps({"wait_s": 0, "known": {HALF: "leased"}})
    poll = workers[0].http.post("/v1/work/poll", content=known, headers=kind).status_code
    body = scene.requester.post("/v1/jobs", content=json.dumps(scene.spec(name=HALF)), headers=kind).status_code
    job.play(*workers)
    return f"cursors {'+'.join(map(str, sorted(cursors)))}; poll {poll}; bodies {body}; {job.seen(worker=workers)}"
