"""hivemind's averager alone, two peers on loopback: all-reduce of one vector, without an optimizer's step."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import hivemind
import torch

WORKERS = 2
WARM = 2
MATCHMAKING_S = 0.2
"""Seconds; the default of 5 would be all that is measured."""


def one(folder: Path, elements: int, count: int, rank: int) -> None:
    """One peer; the first prints the seconds of each round."""
    torch.set_num_threads(1)
    address = folder / "address"
    while rank and not address.exists():
        time.sleep(0.05)
    known = address.read_text().split() if rank else []
    local = {"host_maddrs": ["/ip4/127.0.0.1/tcp/0"], "use_relay": False, "use_auto_relay": False}
    dht = hivemind.DHT(initial_peers=known, start=True, **local)
    if not rank:
        (folder / "new").write_text("\n".join(map(str, dht.get_visible_maddrs())))
        (folder / "new").rename(address)
    recorded = torch.randn(elements, generator=torch.Generator().manual_seed(rank)) * 1e-3
    averager = hivemind.DecentralizedAverager(
        [recorded],
        dht,
        prefix="bench",
        target_group_size=WORKERS,
        min_matchmaking_time=MATCHMAKING_S,
        request_timeout=MATCHMAKING_S / 2,
        start=True,
    )
    (folder / f"ready-{rank}").touch()
    while len(list(folder.glob("ready-*"))) < WORKERS:
        time.sleep(0.05)
    seconds = []
    for _ in range(WARM + count):
        began = time.perf_counter()
        if averager.step(timeout=60) is not None:
            seconds.append(time.perf_counter() - began)
    (folder / f"done-{rank}").touch()
    if not rank:
        print(json.dumps(seconds[WARM:]), flush=True)
    while len(list(folder.glob("done-*"))) < WORKERS:  # a peer that leaves fails the other's last round
        time.sleep(0.05)
    os._exit(0)  # it waits long for its own processes otherwise; main ends them


def main(elements: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, __file__, str(elements), str(count), folder]
        environment = os.environ | {"HOME": folder, "OMP_NUM_THREADS": "1"}
        peers = [
            subprocess.Popen(
                [*own, str(rank)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            for rank in range(WORKERS)
        ]
        try:
            assert peers[0].stdout is not None
            print(peers[0].stdout.readline().strip())
        finally:
            for process in peers:
                process.wait(30)
                with suppress(ProcessLookupError):  # where nothing of its group is left
                    os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    elements, count = int(sys.argv[1]), int(sys.argv[2])
    if len(sys.argv) > 3:
        one(Path(sys.argv[3]), elements, count, int(sys.argv[4]))
    else:
        main(elements, count)
