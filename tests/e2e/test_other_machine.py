"""docs/howto/behind-nat.md's recipe: another machine, in a network namespace of its own, joins and is paid."""

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
from gradmarket.demo.spec import JOB
from tests.lanes import FULL
from tests.patience import PATIENCE_S, wait_until
from tests.town import ALONE

HOST, OTHER = "10.203.117.1", "10.203.117.2"
URL = f"http://{HOST}:8700"
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
    """What begins a command on the service's machine, and on the other; a cable between them is all their network."""
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
        yield [*INSIDE, names[0], *PROGRAM], [*INSIDE, names[1], *PROGRAM]


def test_another_machine_joins_by_one_address_and_is_paid(machines: Machines, tmp_path: Path) -> None:
    here, there = machines
    data, wallet, job = tmp_path / "data", tmp_path / "worker", tmp_path / "job.json"
    job.write_text(json.dumps({**JOB, "rounds": 1, "stop": [], "replication": ALONE, "separation": []}))

    def run(machine: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *machine, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)

    children = DemoProcesses(tmp_path / "logs")
    try:
        serving = children.start("serve", [*here, "serve", "--host", HOST, "--data", str(data)])
        wait_until(lambda: f"worker run --market {URL} --rpc {URL}/chain" in serving.log.read_text())
        joining = ["worker", "run", "--market", URL, "--data", str(wallet)]

        refused = run(there, *joining)
        assert f"{URL}/chain will do" in " ".join((refused.stdout + refused.stderr).split())
        hired = children.start("worker", [*there, *joining, "--rpc", f"{URL}/chain"])
        posted = run(here, "job", "submit", str(job), "--yes", "--data", str(data), "--json")
        assert posted.returncode == 0, posted.stderr
        watched = run(here, "job", "watch", json.loads(posted.stdout)["id"], "--data", str(data))
        assert watched.returncode == 0, watched.stdout + hired.last_words()
        hired.ask_to_leave()
        hired.left(PATIENCE_S)
        redeemed = run(there, "wallet", "redeem", "--data", str(wallet), "--rpc", f"{URL}/chain")
        assert redeemed.returncode == 0, redeemed.stdout + redeemed.stderr
        ledger = run(here, "job", "show", json.loads(posted.stdout)["id"], "--data", str(data), "--json")
        assert int(json.loads(ledger.stdout)["costs"]["earned"]) > 0
    finally:
        children.end()
        run(here, "chain", "down", "--data", str(data))
