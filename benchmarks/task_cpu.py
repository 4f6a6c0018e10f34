"""What a whole task costs the service in CPU: lease, commit, reveal, verdict, upload, accepted, earned, voucher.

The service is a process of its own (embedded: SQLite, stages in-process), its CPU time read from the system. Workers
are simulated here, with real signatures and one recorded payload, so that nothing but the control plane is measured.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from eth_account import Account
from eth_account.messages import encode_defunct
from eth_keys.datatypes import PrivateKey
from siwe import SiweMessage

from benchmarks.figure import Figure
from gradmarket.contracts.local import LocalChain
from gradmarket.market import signing, wire
from gradmarket.market.gradient.merkle import root
from gradmarket.market.messages import Commitment
from gradmarket.market.rules import secrets
from gradmarket.market.terms import Digest, Hash, ReplicaState

PREFIX = "task.cpu_ms"
TASKS = 300
WARM_UP = 50
PARAMETERS = 8 * 64 + 8 + 8 * 10 + 10
JOB: dict[str, Any] = {
    "name": "control plane",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "step": {"rows": 32},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 1,
    "tasks_per_round": TASKS + WARM_UP,
    "price": "1000000000",
}


class Worker:
    """Answers every task with the same zeros."""

    def __init__(self, url: str, domain: signing.Domain) -> None:
        self._account = Account.create()
        self._key = PrivateKey(bytes(self._account.key))
        self._domain = domain
        self._http = httpx.Client(base_url=url, timeout=60)
        self._http.headers["Authorization"] = f"Bearer {self._sign_in()}"
        self._payload = bytes(4 * (1 + PARAMETERS))
        self._root = root(self._payload)
        self._salt = Hash(os.urandom(32))

    def _sign_in(self) -> str:
        told = self._http.get("/v1/session/nonce").json()
        message = SiweMessage(
            domain=told["domain"],
            address=self._account.address,
            statement=wire.STATEMENT.format(payout=self._account.address),
            uri=told["uri"],
            version="1",
            chain_id=told["chain_id"],
            nonce=told["nonce"],
            issued_at="2026-01-01T00:00:00Z",
        ).prepare_message()
        signature = self._account.sign_message(encode_defunct(text=message)).signature
        answer = self._http.post("/v1/session", json={"message": message, "signature": "0x" + signature.hex()})
        return str(answer.json()["token"])

    def poll(self, **said: Any) -> wire.PollAnswer:
        request = wire.PollRequest(determinism_class="bench", **said)
        answer = self._http.post("/v1/work/poll", json=request.model_dump(mode="json"))
        return wire.PollAnswer.model_validate_json(answer.content)

    def task(self, known: dict[Any, ReplicaState], lease: wire.Lease) -> tuple[dict[Any, ReplicaState], wire.Lease]:
        """One task from its lease to the next one: three polls and an upload."""
        offer = signing.digest(self._domain, lease.offer.struct())
        worker = signing.address_of(self._key)
        sealed = secrets.seal(offer, worker, self._salt, wire.hash_of(self._root))
        signature = signing.sign(self._key, signing.digest(self._domain, Commitment(offer, worker, sealed)))
        made = wire.CommitmentMade(
            replica=lease.replica, fence=lease.fence, sealed=sealed, signature=signature, compute_seconds=0
        )
        told = self.poll(commitments=(made,), known={**known, lease.replica: ReplicaState.COMMITTED})
        while not told.waves:
            told = self.poll(known={lease.replica: ReplicaState.COMMITTED})
        shown = wire.Reveal(replica=lease.replica, fence=lease.fence, salt=self._salt, root=Digest(self._root))
        told = self.poll(reveals=(shown,), known={lease.replica: ReplicaState.COMMITTED})
        while not told.uploads:
            told = self.poll(known={lease.replica: ReplicaState.AGREE})
        path = f"/v1/work/payloads/{lease.replica}?fence={lease.fence}"
        answer = self._http.put(path, content=self._payload)
        if answer.status_code != 200:
            raise RuntimeError(answer.text)
        after = {lease.replica: ReplicaState.PAYABLE}
        return after, self.next_lease(after)

    def next_lease(self, known: dict[Any, ReplicaState]) -> wire.Lease:
        while True:
            told = self.poll(capacity=1, known=known)
            if told.leases:
                return told.leases[0]


@contextmanager
def service(folder: Path) -> Iterator[tuple[psutil.Process, str, str]]:
    environment = {**os.environ, "GRADMARKET_SETTLE_EVERY_S": "3600", "GRADMARKET_RESERVE_AHEAD": "1000"}
    environment["GRADMARKET_SETTLE_GRADIENTS"] = "4000"
    command = [sys.executable, "-m", "gradmarket", "serve", "--data", str(folder), "--port", "0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (folder / "url").exists():
            time.sleep(0.05)
        url = (folder / "url").read_text().strip()
        while not _answers(url):
            time.sleep(0.05)
        yield psutil.Process(process.pid), url, (folder / "keys" / "token").read_text().strip()
    finally:
        process.terminate()
        process.wait()
        chain = LocalChain.reattach(folder / "chain")
        if chain is not None:
            chain.stop()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/health").status_code == 200
    except httpx.TransportError:
        return False


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure() -> Iterator[Figure]:
    job = {**JOB, "replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as (process, url, token):
        facts = wire.ChainFacts.model_validate_json(httpx.get(f"{url}/v1/chain").content)
        domain = signing.Domain(facts.chain_id, facts.contract, facts.instance)
        posted = httpx.post(f"{url}/v1/jobs", json=job, headers={"Authorization": f"Bearer {token}"}, timeout=30)
        posted.raise_for_status()
        worker = Worker(url, domain)
        known: dict[Any, ReplicaState] = {}
        lease = worker.next_lease(known)
        for _ in range(WARM_UP):
            known, lease = worker.task(known, lease)
        before, began = _cpu(process), time.perf_counter()
        for _ in range(TASKS - 1):
            known, lease = worker.task(known, lease)
        spent, took = _cpu(process) - before, time.perf_counter() - began
        done = TASKS - 1
        note = f"embedded, SQLite, one worker; {done / took:.0f} tasks/s in sequence"
        yield Figure("task.cpu_ms.r1", 1000 * spent / done, "ms", target="<= 2", note=note)
