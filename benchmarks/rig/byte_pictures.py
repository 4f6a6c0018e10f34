"""Draws docs/bytes*.svg from the committed curves: `python -m benchmarks.rig.byte_pictures`.

Bytes, tokens and losses are measured. Time and money are computed: a round takes the inner steps' CPU time, the bytes
at the link's rates, and the measured rest of a round of three replicas of the small peers' model beside its steps.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Final

from benchmarks.pages import RESULTS, ROOT, results
from benchmarks.rig.chart import Points, svg
from benchmarks.rig.kept_curves import REPLICAS, TASKS, Curve, curves
from benchmarks.rig.link import Link

RESULT: Final = RESULTS / "curves" / "bytes.json"
LINKS: Final = (Link(110, 500), Link(100, 100), Link(20, 100))
COMMUNICATION: Final = "wan.step_s"
"""Seconds of an inner step beside its computing."""
OVERHEAD: Final = "round.overhead_s.mlp1m.r3"
NAMES: Final = {
    "data_parallel": "data-parallel, fp32",
    "fp32": "local steps, fp32",
    "two_bit": "local steps, two_bit up",
    "ours": "local steps, two_bit up and down",
}
ENDS: Final = ("data_parallel", "ours")
"""The trainings that are compared in time and in money."""
Seeds = Sequence[Curve]
"""One training by several seeds."""


def result_of(large: str) -> Path:
    """Returns the file of a large model's curves."""
    return RESULTS / "curves" / f"bytes_{large}.json"


def draw(folder: Path = ROOT / "docs") -> None:
    for name, picture in pictures().items():
        (folder / name).write_text(picture)


def pictures() -> dict[str, str]:
    """By file name."""
    return small() | by_bytes("gpt10m", "10.8 million") | by_bytes("gpt2", "85 million") | by_time()


def by_bytes(large: str, parameters: str) -> dict[str, str]:
    """Of a large GPT: one seed."""
    by_name = {curve.name: curve for curve in curves(result_of(large))}
    drawn = _drawn({name: [by_name[name]] for name in ENDS}, lambda one, n: one.total(n) / 1e6)
    title, end = f"{parameters} parameters: loss by bytes, up and down", by_name["data_parallel"].final
    return {f"bytes_{large}.svg": svg(title, "MB", drawn, end)}


def by_time() -> dict[str, str]:
    """Times of the GPT of 10.8 million parameters, by measurements on a shaped link."""
    by_name = {curve.name: curve for curve in curves(result_of("gpt10m"))}
    plain, ours = (by_name[name] for name in ENDS)
    step_s, measured = inner_step_s([ours]), results()
    timed: dict[str, Points] = {}
    for link in LINKS:
        for curve, beside, label in ((plain, "ddp_fp32", "DDP, fp32"), (ours, f"two_bit_h{ours.steps}", NAMES["ours"])):
            taken = curve.steps * (step_s + float(measured[f"{COMMUNICATION}.{link.name}.{beside}"]["value"]))
            name = f"{label}, {link.name.replace('_', '/')}"
            timed[name] = [(rounds * taken / 3600, loss) for rounds, loss in curve.points]
    title = "10.8 million parameters: loss by time, at Mbit/s up/down"
    return {"bytes_gpt10m_time.svg": svg(title, "hours", timed, plain.final)}


def small() -> dict[str, str]:
    found: dict[str, list[Curve]] = {}
    for curve in curves(RESULT):
        found.setdefault(curve.name, []).append(curve)
    end, step_s = mean(curve.final for curve in found["data_parallel"]), inner_step_s(found["ours"])
    lines, ends = {name: found[name] for name in NAMES}, {name: found[name] for name in ENDS}

    def by_link(seeds: Seeds, link: Link) -> Points:
        return _points(seeds, lambda one, n: n * round_s(one, link, step_s))

    timed = {
        f"{NAMES[name]}, {link.name.replace('_', '/')}": by_link(seeds, link)
        for name, seeds in ends.items()
        for link in LINKS
    }
    return {
        "bytes.svg": svg("Loss by bytes, up and down", "MB", _drawn(lines, lambda one, n: one.total(n) / 1e6), end),
        "bytes_tokens.svg": svg("Loss by tokens", "thousand tokens", _drawn(lines, _tokens), end),
        "bytes_time.svg": svg("Loss by time, at Mbit/s up/down", "seconds", timed, end),
        "bytes_money.svg": svg(
            "Loss by money: a task's price is its time at 110/500",
            "paid seconds",
            _drawn(ends, lambda one, n: n * TASKS * REPLICAS * round_s(one, LINKS[0], step_s)),
            end,
        ),
    }


def inner_step_s(seeds: Seeds) -> float:
    """CPU seconds."""
    return sum(one.cpu_s for one in seeds) / sum(TASKS * one.rounds * one.steps for one in seeds)


def round_s(curve: Curve, link: Link, step_s: float) -> float:
    """Returns the seconds of a round; each worker has such a link for itself."""
    transfer_s = 8e-6 * (curve.up / link.up + curve.down / link.down)
    return curve.steps * step_s + transfer_s + float(results()[OVERHEAD]["value"])


def _tokens(curve: Curve, rounds: int) -> float:
    return rounds * TASKS * curve.steps * curve.tokens / 1e3


def _drawn(found: Mapping[str, Seeds], across: Callable[[Curve, int], float]) -> dict[str, Points]:
    return {NAMES[name]: _points(seeds, across) for name, seeds in found.items()}


def _points(seeds: Seeds, across: Callable[[Curve, int], float]) -> Points:
    """The mean of the seeds, which have one another's rounds."""
    first, *_ = seeds
    rows = zip(*(one.points for one in seeds), strict=True)
    return [(across(first, row[0][0]), mean(loss for _, loss in row)) for row in rows]


if __name__ == "__main__":
    draw()
