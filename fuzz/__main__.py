"""`make fuzz [CASES=n] [START=n] [KIND=kind] [SEED=kind/n]`: cases over all cores, and a table by kind.

1 where any failed, with its seed. Cases are always the same ones; START goes on where another run ended.
"""

import argparse
import math
import os
import sys
import time
from contextlib import closing
from typing import Final

from fuzz.case import kinds
from fuzz.child import Outcome
from fuzz.playing import SHARES, Batch, added, batches, played, player
from fuzz.running import run, settings
from fuzz.showing import shown
from gradmarket.runner import Runner

RUN: Final = 200
"""Accepted documents that are run, at most."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--cases", type=int, default=100_000, help="of all kinds together")
    parser.add_argument("--kind", default="", choices=("", *kinds()), help="of this kind alone")
    parser.add_argument("--start", type=int, default=0, help="the first case's number, of every kind")
    parser.add_argument("--seed", default="", help="play this one case alone, such as parquet/17")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no further cases after so long; 0: all")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed:
        return _replayed(options.seed)
    results = _played(options)
    if "documents" in results:
        results["documents, run"] = _run(results["documents"].kept)
    return shown(results)


def _replayed(seed: str) -> int:
    kind, _, number = seed.partition("/")
    if kind not in kinds() or not number.isdecimal():
        print(f"a seed is one of {', '.join(kinds())}, a slash and a number", file=sys.stderr)
        return 2
    with player() as playing:
        results = {kind: playing.play(Batch(kind, int(number), 1))}
    if kind == "documents":
        results["documents, run"] = _run(results[kind].kept)
    return shown(results)


def _played(options: argparse.Namespace) -> dict[str, Outcome]:
    results: dict[str, Outcome] = {}
    wanted = batches(options.cases, {options.kind: 1} if options.kind else SHARES)
    wanted = [Batch(batch.kind, batch.start + options.start, batch.count) for batch in wanted]
    until = time.monotonic() + 60 * (options.minutes or math.inf)
    with closing(played(wanted, options.processes)) as outcomes:
        for done, (kind, outcome) in enumerate(outcomes, 1):
            results[kind] = added(results.get(kind, Outcome()), outcome)
            print(f"\r{done} of {len(wanted)} batches", end="", file=sys.stderr, flush=True)
            if time.monotonic() > until:
                break
    print(file=sys.stderr)
    return results


def _run(kept: list[int]) -> Outcome:
    """Accepted documents from all over the cases, run."""
    with Runner(settings()) as runner:
        return run(runner, kept[:: -(-len(kept) // RUN) or 1])


if __name__ == "__main__":
    sys.exit(main())
