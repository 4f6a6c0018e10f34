"""hivemind's averager over a slow link, one of two peers: `python hivemind_linked.py FOLDER COMPRESSION COUNT RANK`.

Run at each end of a link. Prints the seconds of each round that averaged the recorded vectors.
"""

import json
import os
import sys
import time
from pathlib import Path

import hivemind
import torch
from hivemind import compression
from hivemind.averaging.allreduce import AllreduceException
from hivemind.averaging.matchmaking import MatchmakingException

WORKERS, WARM = 2, 1
ELEMENTS = 10_795_008
ADDRESSES = ("10.90.0.1", "10.90.0.2")
MATCHMAKING_S = 1.0
"""Seconds; the default of 5 would dominate the measurement, and 0.2, as without a delay, finds no group."""
LATEST_S, CHUNK_S = 60.0, 15.0
"""Seconds that a round and a part of it may take: the values that hivemind.Optimizer gives its averagers."""
CODECS = {
    "fp32": compression.NoCompression,
    "fp16": compression.Float16Compression,
    "8bit": compression.Uniform8BitQuantization,
}


def main(folder: Path, name: str, count: int, rank: int) -> None:
    torch.set_num_threads(1)
    address = folder / "address"
    while rank and not address.exists():
        time.sleep(0.05)
    known = address.read_text().split() if rank else []
    local = {"host_maddrs": [f"/ip4/{ADDRESSES[rank]}/tcp/0"], "use_relay": False, "use_auto_relay": False}
    dht = hivemind.DHT(initial_peers=known, start=True, **local)
    if not rank:
        (folder / "new").write_text("\n".join(map(str, dht.get_visible_maddrs())))
        (folder / "new").rename(address)
    averager = hivemind.DecentralizedAverager(
        [torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(rank)) * 1e-3],
        dht,
        prefix="bench",
        target_group_size=WORKERS,
        min_matchmaking_time=MATCHMAKING_S,
        request_timeout=MATCHMAKING_S / 2,
        allreduce_timeout=LATEST_S,
        next_chunk_timeout=CHUNK_S,
        compression=CODECS[name](),
        start=True,
    )
    _together(folder, "ready", rank)
    seconds = []
    for number in range(WARM + count):
        _together(folder, f"round{number}", rank)
        began = time.perf_counter()
        try:
            averaged = averager.step(timeout=LATEST_S)
        except (TimeoutError, MatchmakingException, AllreduceException) as error:  # the next round may do better
            print(error, file=sys.stderr)
            averaged = None
        if averaged is not None and number >= WARM:
            seconds.append(time.perf_counter() - began)
    _together(folder, "done", rank)
    print(json.dumps(seconds), flush=True)
    os._exit(0)  # its own processes end with it; it waits for them for long otherwise


def _together(folder: Path, stage: str, rank: int) -> None:
    (folder / f"{stage}-{rank}").touch()
    while len(list(folder.glob(f"{stage}-*"))) < WORKERS:
        time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
