"""docs/howto/behind-nat.md's recipes: another machine, in a network namespace of its own, joins and is paid."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.workers import JOB
from tests.lanes import FULL
from tests.patience import PATIENCE_S, wait_until
from tests.town import ALONE

HOST, OTHER = "10.203.117.1", "10.203.117.2"
LOOPBACK, RELAY = "127.0.0.1", 2222
FORWARDER = """
import asyncio, sys

async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def forward(reader, writer):
    there = await asyncio.open_connection(sys.argv[3], int(sys.argv[4]))
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer), return_exceptions=True)

async def main():
    async with await asyncio.start_server(forward, sys.argv[1], int(sys.argv[2])) as server:
        print("listening", flush=True)
        await server.serve_forever()

asyncio.run(main())
"""
"""A program that forwards one address and port to another: half of the way of `ssh -L`."""
PROGRAM = [sys.executable, "-m", "gradmarket"]
INSIDE = ["-c", "import os, sys; os.execvp('ip', ['ip', 'netns', 'exec', *sys.argv[1:]])"]
"""Arguments of Python that become a command in the namespace that is named next."""
Machines = tuple[list[str], list[str]]

pytestmark = [
    FULL,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and ip"),
]


def ip(line: str) -> None:
    subprocess.run(["ip", *line.split()], check=True)


@pytest.fixture
def machines() -> Iterator[Machines]:
    """Prefixes of commands on the service's machine and on the other; a cable between them is all their network."""
    names = [f"gm{os.getpid()}{end}" for end in "ab"]
    with ExitStack() as ending:
        for name in names:
            ip(f"netns add {name}")
            ending.callback(ip, f"netns delete {name}")
        ip(f"link add {names[0]} netns {names[0]} type veth peer name {names[1]} netns {names[1]}")
        for name, address in zip(names, (HOST, OTHER), strict=True):
            ip(f"-n {name} address add {address}/24 dev {name}")
            ip(f"-n {name} link set {name} up")
            ip(f"-n {name} link set lo up")
        yield [*INSIDE, names[0]], [*INSIDE, names[1]]


def open_tunnel(children: DemoProcesses, machines: Machines) -> None:
    """Connects the other machine's loopback to the service's, by both ends of an `ssh -L`."""
    ends = ((HOST, RELAY, LOOPBACK, 8700), (LOOPBACK, 8700, HOST, RELAY))
    for name, machine, ways in zip(("near", "far"), machines, ends, strict=True):
        end = children.start(name, [*machine, sys.executable, "-c", FORWARDER, *map(str, ways)])
        wait_until(lambda end=end: "listening" in end.log.read_text())  # type: ignore[misc]


@pytest.mark.parametrize("address", [HOST, LOOPBACK], ids=["lan", "tunnel"])
def test_another_machine_joins_by_one_address_and_is_paid(machines: Machines, tmp_path: Path, address: str) -> None:
    here, there = ([*machine, *PROGRAM] for machine in machines)
    url = f"http://{address}:8700"
    data, wallet, job = tmp_path / "data", tmp_path / "worker", tmp_path / "job.json"
    job.write_text(json.dumps({**JOB, "rounds": 1, "stop": [], "replication": ALONE, "separation": []}))

    def run(machine: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *machine, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)

    children = DemoProcesses(tmp_path / "logs")
    try:
        serving = children.start("serve", [*here, "serve", "--host", address, "--data", str(data)])
        wait_until(lambda: f"worker run --market {url}" in serving.log.read_text())
        if address == LOOPBACK:
            open_tunnel(children, machines)
        joining = ["worker", "run", "--market", url, "--data", str(wallet)]

        if address == HOST:
            refused = run(there, *joining)
            assert f"{url}/chain will do" in " ".join((refused.stdout + refused.stderr).split())
        hired = children.start("worker", [*there, *joining, "--rpc", f"{url}/chain"])
        posted = run(here, "job", "submit", str(job), "--yes", "--data", str(data), "--json")
        assert posted.returncode == 0, posted.stderr
        watched = run(here, "job", "watch", json.loads(posted.stdout)["id"], "--data", str(data))
        assert watched.returncode == 0, watched.stdout + hired.last_words()
        hired.request_leave()
        hired.left(PATIENCE_S)
        redeemed = run(there, "wallet", "redeem", "--data", str(wallet), "--rpc", f"{url}/chain")
        assert redeemed.returncode == 0, redeemed.stdout + redeemed.stderr
        ledger = run(here, "job", "show", json.loads(posted.stdout)["id"], "--data", str(data), "--json")
        assert int(json.loads(ledger.stdout)["costs"]["earned"]) > 0
    finally:
        children.end()
        run(here, "chain", "down", "--data", str(data))
