"""Merging payloads to published parameters, and resident memory of a model in files.

`MERGE_ELEMENTS` names the size of the large model; four payloads of it are merged by a process of its own. With 10^9
the figures end in `1b`, and it takes 36 GB of disk.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.figure import Figure
from benchmarks.rig.service import JOB
from benchmarks.size import sized
from gradmarket.market.gradient.aggregators import load_aggregator
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.round_merge import Recipe
from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Digest
from graphdoc import tensors
from requester.blobs.disk import DiskBlobs
from requester.live_states import Image, LiveState, Version
from requester.moves import replay
from requester.moves.replay import MergeInputs

PREFIX = "round.merge"
SAMPLES = sized(5, 1)
SMALL, LARGE = sized(10_000_000, 10_000), int(os.environ.get("MERGE_ELEMENTS", sized("100_000_000", "20_000")))
TENSOR = sized(2**22, 2**12)
"""Elements of each tensor."""
Shapes = dict[str, tuple[int, ...]]


def measure() -> Iterator[Figure]:
    for name, count, answers in (("small", SMALL, 2), ("1b" if LARGE == 10**9 else "large", LARGE, 4)):
        in_files = name != "small"
        with tempfile.TemporaryDirectory(dir=os.environ.get("MERGE_FOLDER")) as folder:
            command = [sys.executable, "-m", "benchmarks.merge", folder, str(count), str(answers), str(int(in_files))]
            measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        note = (
            f"{answers} payloads of {4 * count / 1e9:.3g} GB, AdamW; {measured['least']:.3g} to {measured['most']:.3g}"
        )
        yield Figure(f"round.merge_gbs.{name}", measured["gbs"], "GB/s", target=">= 1.0", note=note)
        yield Figure(f"round.merge_cpu_gbs.{name}", measured["cpu_gbs"], "GB/s", note="payload bytes a second of CPU")
        if in_files:
            note = f"{count:.3g} parameters, state in files"
            of = "" if name == "large" else f".{name}"
            yield Figure(f"round.merge_memory_gib{of}", measured["gib"], "GiB", target="<= 4", note=note)


def _image(shapes: Shapes, folder: Path | None) -> Image:
    """A file of zeros: float32 arrays of these shapes, and int64 where a shape is none."""
    entries, end = {}, 0
    for name, shape in sorted(shapes.items(), key=lambda item: (item[1] != (), item[0])):
        length = 4 * shape[0] if shape else 8
        entries[name] = {"dtype": "F32" if shape else "I64", "shape": shape, "data_offsets": [end, end + length]}
        end += length
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    image = Image(8 + len(header) + end, folder)
    image.data[: 8 + len(header)] = len(header).to_bytes(8, "little") + header
    image.arrays = tensors.view_tensors(image.data)
    return image


def _payload(blobs: DiskBlobs, count: int, seed: int) -> Digest:
    drawn = np.random.default_rng(seed).standard_normal(TENSOR, np.float32) * np.float32(1e-3)
    with blobs.receive() as incoming:
        for start in range(0, count + 1, TENSOR):
            incoming.write(drawn[: min(TENSOR, count + 1 - start)].tobytes())
        return blobs.store_blob(incoming)


def _merged(folder: Path, count: int, answers: int, in_files: bool) -> dict[str, float]:
    shapes: Shapes = {f"w{start}": (min(TENSOR, count - start),) for start in range(0, count, TENSOR)}
    layout = Layout((LayoutEntry("loss", (), "loss"), *(LayoutEntry(n, s, "gradient") for n, s in shapes.items())))
    moments = {f"{moment}/{name}": shape for name, shape in shapes.items() for moment in ("first", "second")}
    place, blobs, mean = folder if in_files else None, DiskBlobs(folder), load_aggregator("mean")
    spec = JobSpec.model_validate(JOB | {"optimizer": {"name": "adamw", "lr": 1e-3}, "tasks_per_round": answers})
    inputs = MergeInputs(
        before=Version(0, Digest(""), None),
        spec=spec,
        recipe=Recipe(layout, load_codec("fp32"), mean, mean.Settings(), 1e6, answers),
        counters=(),
        answers=tuple((_payload(blobs, count, seed), bytes(32)) for seed in range(answers)),
        scales=(1.0,) * answers,
    )
    memory = _image({"steps": (), **moments}, place)
    state = LiveState(inputs.before, _image(shapes, place), _image(shapes, place), memory)
    seconds, cpu = [], []
    for _ in range(2 if count >= 10**9 else SAMPLES + 1):
        began, used = time.perf_counter(), time.process_time()
        replay.merge_round(blobs, inputs, state)
        updated = replay.store_image(blobs, state.parameters)
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
        blobs.drop(updated)
    length = 4 * answers * count / 1e9
    rates = sorted(length / took for took in seconds[1:])
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "gbs": median(rates),
        "least": rates[0],
        "most": rates[-1],
        "cpu_gbs": length / median(cpu[1:]),
        "gib": resident,
    }


if __name__ == "__main__":
    where, elements, number, mapped = sys.argv[1:]
    print(json.dumps(_merged(Path(where), int(elements), int(number), mapped == "1")))
