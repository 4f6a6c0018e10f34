"""The loss that few bytes cost, and the bytes needed to reach the final loss of data-parallel training.

A GPT of 0.16 million parameters on Python's own library, by the market's own rules (rig.character_rounds).
Data-parallel: each task is one gradient in fp32, and workers fetch whole parameters. Ours: a task takes H inner steps.
Both have the same rows in an inner step, Muon, and a cosine schedule. All was chosen with a seed that is not among
the measured ones.

`bytes.sync_loss.CODEC`: the final loss over that of dense answers, in as many rounds. `bytes.equal_loss_*`: bytes that
data-parallel training took over those until the final loss of data-parallel was reached. Each measured curve is
kept in build/bytes.jsonl until all are there; then benchmarks/results/curves/bytes.json has them, and the pictures of
docs/results/bytes.md are drawn.
"""

import os
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Final

import torch

from benchmarks.figure import Figure
from benchmarks.rig import byte_pictures
from benchmarks.rig.character_rounds import Case, Scene, Training, library, narrow
from benchmarks.rig.kept_curves import TASKS, Curve, Kept
from benchmarks.size import OUTPUT, curves_folder, pictures_folder, sized
from examples.character import LENGTH
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout, payload_bytes
from gradmarket.market.gradient.published_update import update_bytes
from gradmarket.market.step import GradientStep, InnerOptimizer, LocalStep, Schedule

PREFIX = "bytes."
SEEDS = range(int(os.environ.get("SEEDS", sized("3", "1"))))
SCENE = Scene(narrow(sized(3, 1)), library, slice(0, None, sized(571, 5710)))
ROWS, STEPS, H = sized((16, 360, 30), (1, 4, 2))
"""`STEPS`: of data-parallel training; local steps of the codecs' comparison have as many in all."""
LONGER = 2.5
"""Inner steps of the run that reaches the same loss, over STEPS, at most."""
MUON: Final = InnerOptimizer(
    name="muon", lr=2e-2, clip=1.0, schedule=Schedule(name="cosine"), adamw=["tokens.*", "places", "head.*"]
)
OUTER, MOMENTUM = 0.7, 0.6
CODECS = ("fp32", "two_bit", "int4", "int8")
EVERY = sized(20, 2)
"""Steps of data-parallel training between two measured losses."""
KEPT, RESULT = sized(Path("build"), OUTPUT) / "bytes.jsonl", curves_folder() / byte_pictures.RESULT.name


def measure() -> Iterator[Figure]:
    torch.set_num_threads(1)
    kept = Kept(KEPT)
    found = {case.name: [measure_curve(kept, case, seed) for seed in SEEDS] for case in _cases()}
    yield from sync_losses(found)
    yield up_ratio(found["data_parallel"][0], found["two_bit"][0])
    yield from equal_loss(found["data_parallel"], found["ours"])
    kept.end(RESULT)
    byte_pictures.draw(pictures_folder())


def sync_losses(found: Mapping[str, list[Curve]]) -> Iterator[Figure]:
    dense = mean(curve.final for curve in found["fp32"])
    for name in CODECS:
        losses = [curve.final for curve in found[name]]
        rounds = found[name][0].rounds
        note = f"{rounds} rounds of {H} inner steps; nats by seed: {_listed('.3f', losses)}"
        target = "" if name == "fp32" else "<= 1.01"
        yield Figure(f"bytes.sync_loss.{name}", mean(losses) / dense, "", "dense", mean(losses) / dense, target, note)


def up_ratio(plain: Curve, ours: Curve) -> Figure:
    ratio = ours.steps * plain.up / ours.up
    note = f"{plain.up} bytes an answer and {ours.up}, the loss's 4 among them; H = {ours.steps}"
    return Figure("bytes.up_ratio", ratio, "", "data-parallel fp32", ratio, ">= 384", note)


def equal_loss(plain: list[Curve], ours: list[Curve], prefix: str = PREFIX) -> Iterator[Figure]:
    """A run that never reaches the loss counts as a ratio of 0."""
    pairs = [(one, other, other.reached(one.final)) for one, other in zip(plain, ours, strict=True)]
    up = [one.uploads(one.rounds) / other.uploads(rounds) if rounds else 0.0 for one, other, rounds in pairs]
    total = [one.total(one.rounds) / other.total(rounds) if rounds else 0.0 for one, other, rounds in pairs]
    tokens = [other.steps * rounds / one.rounds if rounds else float("inf") for one, other, rounds in pairs]
    note = f"H = {ours[0].steps}; tokens, over those of data-parallel: {_listed('.2f', tokens)}"
    for name, by_seed, target in (("up", up, 150), ("total", total, 50)):
        note_text = f"seeds: {_listed('.0f', by_seed)}; {note}"
        worst = min(by_seed)
        yield Figure(f"{prefix}equal_loss_{name}", worst, "", "data-parallel fp32", worst, f">= {target}", note_text)
    note_text, most = "the worst of the seeds", max(tokens)
    yield Figure(f"{prefix}equal_loss_tokens", most, "", "data-parallel", most, note=note_text)
    losses = [curve.final for curve in plain]
    note = f"nats by seed: {_listed('.3f', losses)}; {plain[0].rounds} steps of {TASKS} times {plain[0].tokens} tokens"
    yield Figure(f"{prefix}plain_loss", mean(losses), "nats", note=note)


def _cases() -> Iterator[Case]:
    settings = {"adamw": MUON.settings["adamw"]}
    step = GradientStep(rows=TASKS * ROWS)  # the rows of all tasks as those of one: the same mean, in less time
    schedule = Schedule(name="cosine", warmup=sized(20, 1))
    yield Case("data_parallel", step, STEPS, MUON.name, MUON.lr, settings, 1, schedule=schedule)
    yield _local("ours", int(LONGER * STEPS) // H, uplink="two_bit", downlink="two_bit")
    for name in CODECS:
        yield _local(name, STEPS // H, uplink=name)


def _local(name: str, rounds: int, uplink: str, downlink: str = "") -> Case:
    step = LocalStep(kind="local", rows=ROWS, steps=H, optimizer=MUON)
    return Case(name, step, rounds, "nesterov", OUTER, {"momentum": MOMENTUM}, TASKS, uplink, downlink)


def measure_curve(kept: Kept, case: Case, seed: int) -> Curve:
    return kept.curve(f"{case!r} {seed}", partial(_measured, case, seed))


def _measured(case: Case, seed: int) -> Curve:
    training, began = Training(case, seed, SCENE), time.process_time()
    points = list(training.losses(EVERY if case.step.kind == "gradient" else 1))
    spent = time.process_time() - began
    return Curve(case.name, seed, case.step.moves, ROWS * LENGTH, *sent(training.layout, case), points, spent)


def sent(layout: Layout, case: Case) -> tuple[int, int, int]:
    """Returns the bytes of a task's answer, of whole parameters, and of a replica's downloads in later rounds."""
    whole = 4 * sum(entry.size for entry in layout.of("gradient"))
    down = update_bytes(layout, load_codec(case.downlink)) if case.downlink else whole
    return payload_bytes(layout, load_codec(case.uplink)), whole, down


def _listed(how: str, values: list[float]) -> str:
    return ", ".join(f"{value:{how}}" for value in values)
