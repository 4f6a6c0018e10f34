"""GPT-2 small trained end to end on this machine, by real workers.

`r1`: one worker, and an auditor that runs each task again. `r3`: three workers vote. Both train the ready architecture,
whose head is not tied: 163 million parameters. `sdk`: transformers' own GPT-2, 124 million, handed over by the SDK. A
row has 64 tokens of a vocabulary of 50,257.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
import transformers

from benchmarks.figure import Figure
from benchmarks.rig import emitted
from benchmarks.rig.rounds import Model, packed
from benchmarks.rig.service import Service, service
from benchmarks.size import sized
from gradmarket import Market

PREFIX = "large"
ROUNDS = int(os.environ.get("ROUNDS", sized("3", "1")))
ADAMW = {"name": "adamw", "lr": 3e-4}
MODEL = sized(
    Model("gpt", {"depth": 12, "width": 768, "heads": 12}, "int64", (64,), 50257, ADAMW, 0),
    Model("gpt", {"depth": 1, "width": 16, "heads": 2}, "int64", (8,), 99, ADAMW, 0),
)
TINY = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=99)
GPT2 = sized(transformers.GPT2Config(), TINY)
LATEST_S = 3600.0
AUDITED, VOTED = {"name": "audited", "audit": 1.0}, {"name": "fixed", "replicas": 3, "max_replicas": 3}
FIELDS: dict[str, Any] = {
    "uplink": {"codec": "int8"},
    "deadlines": {"lease_s": 1800, "wave_s": 1800, "upload_s": 1800},
}


@dataclass
class Peaks:
    """The most memory of each process tree, in bytes: its own and its share of shared pages (PSS)."""

    trees: dict[str, psutil.Process]
    most: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        for name, root in self.trees.items():
            used = 0
            with suppress(psutil.NoSuchProcess):
                for process in (root, *root.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                        used += process.memory_full_info().pss
            self.most[name] = max(used, self.most.get(name, 0))

    @contextmanager
    def watched(self) -> Iterator[None]:
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                self.look()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def measure() -> Iterator[Figure]:
    if not sized(False, True):
        yield from _measured("r1", _posted, AUDITED, workers=1, audits=True)
        yield from _measured("r3", _posted, VOTED, workers=3, audits=False)
    yield from _measured("sdk", _handed_over, AUDITED, workers=1, audits=True)


def _measured(
    name: str, post: Callable[..., str], replication: dict[str, Any], workers: int, audits: bool
) -> Iterator[Figure]:
    with service(shared=False) as here, tempfile.TemporaryDirectory() as folder:
        commands = {f"worker {i}": _worker(here, Path(folder) / str(i)) for i in range(workers)}
        if audits:
            commands["auditor"] = _auditor(here, Path(folder) / "auditor")
        with _running(commands, Path(folder)) as processes:
            peaks = Peaks({"service": here.process, **processes})
            with peaks.watched():
                began = time.monotonic()
                job = post(here, replication)
                view = _finished(here, job)
                took = time.monotonic() - began
        seconds = _seconds(here, job)
    note = f"{ROUNDS} rounds of one task of one row, {workers} workers; {took:.0f} s from the post to the end"
    yield Figure(f"large.round_s.{name}", median(seconds), "s", note=note)
    yield Figure(f"large.accepted.{name}", view["accepted"], "gradients", target=f">= {ROUNDS * workers}")
    for role in ("service", "worker 0", *(["auditor"] if audits else [])):
        figure = f"large.{role.split()[0]}_gib.{name}"
        yield Figure(figure, peaks.most[role] / 2**30, "GiB", note="peak of its processes, shared pages by their share")


def _posted(here: Service, replication: dict[str, Any]) -> str:
    return here.post(
        latest_s=1200,
        model={"architecture": MODEL.architecture, "arguments": MODEL.arguments},
        data={"manifest": packed(here, MODEL)},
        step={"rows": 1},
        optimizer=MODEL.optimizer,
        rounds=ROUNDS,
        replication=replication,
        **FIELDS,
    )


def _handed_over(here: Service, replication: dict[str, Any]) -> str:
    """Posts transformers' GPT-2 through the SDK, in this process."""
    tokens = np.random.default_rng(0).integers(0, GPT2.vocab_size, (20, 64))
    torch.manual_seed(0)
    module = transformers.GPT2LMHeadModel(GPT2)
    with Market(here.url, here.token) as market:
        job = market.train(
            module,
            emitted.words,
            {"input_ids": tokens, "y": np.roll(tokens, -1, axis=1)},
            optimizer=MODEL.optimizer,
            step={"rows": 1},
            rounds=ROUNDS,
            price=str(10**9),
            budget=str(10**14),
            replication=replication,
            **FIELDS,
        )
        return job.id


def _worker(here: Service, folder: Path) -> Sequence[str]:
    own = ("--market", here.url, "--data", str(folder), "--plain-key", "--json")
    return ("worker", "run", *own)


def _auditor(here: Service, cache: Path) -> Sequence[str]:
    return ("auditor", "run", "--market", here.url, "--token", here.token, "--cache", str(cache), "--json")


@contextmanager
def _running(commands: dict[str, Sequence[str]], folder: Path) -> Iterator[dict[str, psutil.Process]]:
    """Commands of `gradmarket`, each with a log of its own; ended by SIGTERM, and killed where that takes long."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                whole = [sys.executable, "-m", "gradmarket", *command]
                started[name] = subprocess.Popen(whole, stdout=log, stderr=log)
        yield {name: psutil.Process(process.pid) for name, process in started.items()}
    finally:
        for process in started.values():
            process.terminate()
        for process in started.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _finished(here: Service, job: str) -> dict[str, Any]:
    until = time.monotonic() + LATEST_S
    while time.monotonic() < until:
        view = here.get(f"jobs/{job}")
        if view["state"] == "finished":
            return view
        if view["state"] not in ("draft", "awaiting_funds", "running"):
            raise RuntimeError(f"{view['state']}: {view['reason']}")
        time.sleep(0.5)
    raise TimeoutError(f"not finished: {view}")


def _seconds(here: Service, job: str) -> list[float]:
    """Returns how long each round was open, merge included."""
    rounds = here.get(f"jobs/{job}/rounds")["items"]
    times = [[datetime.fromisoformat(each[name]) for name in ("opened_at", "closed_at")] for each in rounds]
    return [(closed - opened).total_seconds() for opened, closed in times]
