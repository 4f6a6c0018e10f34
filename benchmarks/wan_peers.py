"""Time of a step besides its computing at three links, beside peers whose workers trust each other.

`wan.step_s.UP_DOWN.NAME`: seconds an inner step, of the GPT of 10.8 million parameters, two workers. DDP and hivemind
average every step's gradient, in fp32 and in their own codes: DDP's 16 bits and powerSGD of rank one, hivemind's 16 and
8 bits. They choose ports and addresses themselves, so they run in two network namespaces joined by such a link
(rig.joined); with two of them either sends as much as a gradient has. Ours is a round in the market besides its steps,
by rig.link, over H: `two_bit` both ways, R = 1; both workers share that link.

`wan.step_s.survived.NAME`: the share of steps that ended well although a connection broke in the first of them.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import benchmarks.peers
from benchmarks.figure import Figure
from benchmarks.rig import ddp_step
from benchmarks.rig.joined import DEVICE, Wire, joined
from benchmarks.rig.link import Link, Relay, relayed, seldom
from benchmarks.rig.peers import ENVIRONMENTS
from benchmarks.rig.rounds import GPT_10M, Pace, measured
from benchmarks.rig.service import service
from benchmarks.size import sized

PREFIX = "wan.step_s"
LINKS: Final = sized((Link(110, 500), Link(100, 100), Link(20, 100)), (Link(110, 500),))
STEPS: Final = (30, 100)
"""Inner steps of a round of ours."""
COUNT = int(os.environ.get("WAN_ROUNDS", sized("3", "1")))
LATEST_S: Final = 900
HIVEMIND: Final = ENVIRONMENTS / "hivemind" / "bin" / "python"
DDP: Final = (sys.executable, "-m", "benchmarks.rig.ddp_step")
LINKED: Final = Path(*benchmarks.peers.__path__) / "hivemind_linked.py"
OURS: Final = {"uplink": {"codec": "two_bit"}, "downlink": {"codec": "two_bit"}}


@dataclass(frozen=True)
class Peer:
    """Two processes, one at each end of a link. `warm`: gradients that either sends before the first counted one.

    `codes`: the least bytes that an element takes on the link; where fewer crossed it, nothing was averaged.
    """

    name: str
    command: Sequence[str]
    codes: Mapping[str, int]
    warm: int

    def seconds(self, code: str, wire: Wire, count: int) -> list[float]:
        """Returns those of each step that ended well. Raises RuntimeError where the peer cannot even begin."""
        with TemporaryDirectory() as folder, joined(wire) as ends:
            environment = os.environ | {"HOME": folder, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": DEVICE}
            both = []
            for rank, end in enumerate(ends):
                command = [*end, *self.command, folder, code, str(count), str(rank)]
                with (
                    (Path(folder) / f"said{rank}").open("wb") as output,
                    (Path(folder) / f"log{rank}").open("wb") as log,
                ):
                    own = subprocess.Popen(command, env=environment, stdout=output, stderr=log, start_new_session=True)
                    both.append(own)
            try:
                for process in both:
                    process.wait(LATEST_S)
            finally:
                for process in both:  # a peer's own processes outlive it
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
            lines = (Path(folder) / "said0").read_text().splitlines()
            if not lines:
                raise RuntimeError(f"{self.name} failed: {(Path(folder) / 'log0').read_text()[-500:]}")
            return [float(each) for each in json.loads(lines[-1])]


PEERS: Final = (
    Peer("ddp", DDP, {"fp32": 4, "fp16": 2, "powersgd": 0}, 1 + ddp_step.WARM),
    Peer("hivemind", (str(HIVEMIND), str(LINKED)), {"fp32": 4, "fp16": 2, "8bit": 1}, 1),
)


def measure() -> Iterator[Figure]:
    peers = [peer for peer in PEERS if Path(peer.command[0]).exists()]
    for link in LINKS:
        yield from _ours(link)
        for peer in peers:
            for code in peer.codes:
                yield from _peer(link, peer, code)
    for peer in peers:
        yield _survived(peer)


def _ours(link: Link) -> Iterator[Figure]:
    relay = Relay(link, seldom(random.Random(0), 1 << 22))
    with relayed(relay), service(shared=False, settings={"GRADMARKET_URL": relay.url}) as here:
        taken = sorted(measured(here, GPT_10M, 1, COUNT, Pace(job=OURS)).seconds)
    for steps in STEPS:
        yield _figure(link, f"two_bit_h{steps}", median(taken) / steps, taken, "rounds")


def _peer(link: Link, peer: Peer, code: str) -> Iterator[Figure]:
    """Yields nothing where the peer ran and did not average: hivemind 1.1.12 drops messages in 8 bits."""
    wire, name = Wire(link), f"{peer.name}_{code}"
    taken = sorted(peer.seconds(code, wire, COUNT))
    if wire.ways[0].passed < len(taken) * peer.codes[code] * GPT_10M.elements:
        print(f"{name}: {wire.ways[0].passed} bytes crossed the link in all, too few for an average", file=sys.stderr)
        return
    yield _figure(link, name, median(taken), taken, "steps")


def _figure(link: Link, name: str, seconds: float, taken: list[float], subject: str) -> Figure:
    note = f"{len(taken)} {subject} of {taken[0]:.3g} to {taken[-1]:.3g} s beside their computing"
    return Figure(f"{PREFIX}.{link.name}.{name}", seconds, "s", note=note)


def _survived(peer: Peer) -> Figure:
    """In fp32, at the first link; the connection breaks in the middle of the first counted step."""
    wire = Wire(LINKS[0], (peer.warm + 0.5) * 4 * GPT_10M.elements)
    done = len(peer.seconds("fp32", wire, COUNT))
    note = f"{wire.broken} connection broke; {done} of {COUNT} steps ended well"
    return Figure(f"{PREFIX}.survived.{peer.name}", done / COUNT, "of the steps", note=note)
