"""Work of a card in place of the host, compared with it: optimizers, norms, codecs, TF32, local steps, CUDA graphs."""

import time
from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.cards.lines import MEMORY, SEED, Line, measure_distance
from benchmarks.cards.workloads import Workload, list_workloads
from gradmarket.market.gradient import optimizers
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.norm import compute_norm
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload_layout import SHARD_ELEMENTS, Layout, LayoutEntry, payload_bytes
from gradmarket.market.step import GradientStep, InnerOptimizer, LocalStep
from gradmarket.runner import DocumentInfo, Runner
from gradmarket.runner.device_arrays import compute_device_norm, download_arrays, upload_arrays
from gradmarket.runner.device_codecs import PACKERS, estimate_packing_bytes, pack_answer
from graphdoc import plugins
from graphdoc.document.captured import FIRST, CapturedPasses, record_cuda_graph
from graphdoc.document.interpret import Program
from graphdoc.document.product_precisions import compute_in_tf32, round_to_tf32
from graphdoc.document.schema import parse_document
from graphdoc.passes import build_tensors, mean_gradient, numpy_of
from graphdoc.runner import DocumentRunner, RunnerSettings
from graphdoc.runner.arena import Arena, Placement
from graphdoc.runner.pinned import PinnedArena

SHAPES = {"a.weight": (511, 1023), "a.bias": (1023,), "scale": ()}
TF32: float = 2e-3
"""The farthest that a product in TF32 may be from that of operands rounded to nearest, of the largest element."""


def check_optimizers(device: str) -> Iterator[Line]:
    """Five steps of each elementwise optimizer there have the bits of numpy's; so has the norm."""
    for name in plugins.list_plugin_names(optimizers.__name__):
        rule = load_optimizer(name)
        if rule.ELEMENTWISE:
            same = _compare_optimizer(name, device)
            yield Line(f"optimizers.{name}", not same, f"other bits than numpy's: {same}" if same else "")
    gradient = _draw_arrays(5)
    host = compute_norm(array.reshape(-1) for array in gradient.values())
    there = compute_device_norm(upload_arrays(gradient, device))
    yield Line("optimizers.norm", host == there, f"{host.hex()} on the host, {there.hex()} there")


def _draw_arrays(seed: int, spread: float = 1.0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {name: (draw.normal(size=shape) * spread).astype(np.float32) for name, shape in SHAPES.items()}


def _compare_optimizer(name: str, device: str) -> list[str]:
    """Returns the names of results that have other bits on the card."""
    rule = load_optimizer(name)
    settings, parameters = rule.Settings(), _draw_arrays(1)
    memory = rule.start(parameters, settings)
    there, held = upload_arrays(parameters, device), upload_arrays(memory, device)
    for number in range(5):
        gradient = _draw_arrays(10 + number, 10.0 ** (number - 3))
        parameters, memory = rule.step(parameters, gradient, memory, 0.01, settings)
        there, held = rule.step(there, upload_arrays(gradient, device), held, 0.01, settings)
    found = download_arrays(there) | download_arrays(held)
    return [key for key, array in (parameters | memory).items() if found[key].tobytes() != array.tobytes()]


def check_codecs(device: str) -> Iterator[Line]:
    """Each codec packs the same bytes as on the processor (tests compare that with compiled loops), any bits."""
    shards = 1 if device == "cpu" else 9
    entries = (LayoutEntry("loss", (), "loss"), LayoutEntry("w", (shards * SHARD_ELEMENTS + 4099,), "gradient"))
    layout, draw = Layout(entries), np.random.default_rng(4)
    values = draw.standard_normal(layout.size - 1, np.float32)
    values *= np.repeat(np.float32(2.0) ** draw.integers(-140, 120, -(-values.size // 64)), 64)[: values.size]
    values[: 2**16].view(np.uint32)[:] = draw.integers(0, 2**32, 2**16, np.uint32)
    for name in PACKERS:
        found, taken = [], 0.0
        for place in ("cpu", device, device):
            tensors = {"loss": torch.tensor(0.5, device=place), "w": torch.from_numpy(values).to(place)}
            packed = torch.zeros(payload_bytes(layout, load_codec(name)), dtype=torch.uint8)
            before = _start_peak(device)
            begun = time.perf_counter()
            pack_answer(layout, tensors, name, packed)
            taken = time.perf_counter() - begun
            memory = max(0, torch.cuda.max_memory_allocated() - before)
            found.append(packed.numpy().tobytes())
        held = len(set(found)) == 1 and memory <= estimate_packing_bytes(layout)
        note = f"{len(found[0])} bytes; took {memory / layout.size:.1f} bytes an element"
        yield Line(f"codecs.{name}", held, note, 4 * layout.size / taken / 1e9, "GB/s of float32")


def _start_peak(device: str) -> int:
    """Has the peak of a card's memory counted from now on, and returns the bytes that tensors have there."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def check_payload(device: str) -> Iterator[Line]:
    """The confined child packs on the card the answer that it gives unpacked, of a gradient and of local steps."""
    workload = next(one for one in list_workloads() if one.name == "cnn")
    local = LocalStep(kind="local", rows=4, steps=4, optimizer=InnerOptimizer(name="adamw", lr=1e-3))
    with Runner(RunnerSettings(device=device, memory_bytes=MEMORY)) as runner:
        layout = DocumentInfo.of(runner.load(workload.model.document)).layout
        for step in (GradientStep(rows=16), local):
            task = workload.model.parameters, workload.batch, SEED, step
            answer = {name: torch.from_numpy(array) for name, array in runner.compute(*task).items()}
            there = runner.compute_payload(*task, "two_bit")
            here = torch.zeros(len(there), dtype=torch.uint8)
            pack_answer(layout, answer, "two_bit", here)
            again = [runner.compute_payload(*task, "two_bit", "the round's") for _ in range(2)]
            same = [here.numpy().tobytes() == one for one in (there, *again)]
            yield Line(
                f"payload.{step.kind}", all(same), f"{len(there)} bytes, and of a state that stays there: {same}"
            )


def check_tf32(device: str) -> Iterator[Line]:
    """A product in TF32 is not that in float32, and is near that of rounded operands; float32 is as before after it."""
    draw = torch.Generator().manual_seed(3)
    left, right = torch.randn(512, 768, generator=draw), torch.randn(768, 640, generator=draw)
    exact = (round_to_tf32(left).double() @ round_to_tf32(right).double()).float()
    there = left.to(device), right.to(device)
    before = (there[0] @ there[1]).cpu()
    with compute_in_tf32(torch.device(device).type):
        rounded = (there[0] @ there[1]).cpu()
    after = (there[0] @ there[1]).cpu()
    far = float((rounded - exact).abs().max() / exact.abs().max())
    yield Line("tf32.near", far <= TF32, "", far, "of the largest element, from operands rounded to nearest")
    yield Line("tf32.used", not torch.equal(rounded, before), "a card before sm_80 has no TF32")
    yield Line("tf32.ends", torch.equal(before, after), "float32 after it has the bits from before")


def check_local_steps(device: str) -> Iterator[Line]:
    """Local steps with their optimizer there have the same bits again and in another child, near the processor's."""
    step = LocalStep(kind="local", rows=4, steps=4, optimizer=InnerOptimizer(name="adamw", lr=1e-3, clip=1.0))
    workload = next(one for one in list_workloads() if one.name == "mlp")
    answers = []
    for place in (device, device, "cpu"):
        with Runner(RunnerSettings(device=place, memory_bytes=MEMORY)) as runner:
            runner.load(workload.model.document)
            answers += [runner.compute(workload.model.parameters, workload.batch, SEED, step) for _ in range(2)]
    bits = {tuple((name, array.tobytes()) for name, array in sorted(one.items())) for one in answers[:4]}
    far = measure_distance(answers[0], answers[4])
    yield Line("local_steps.bits", len(bits) == 1, "", far, "of the largest element, from the CPU's")


def check_graphs(device: str) -> Iterator[Line]:
    """Passes that were recorded as CUDA graphs have the plain ones' bits, here and in the confined child."""
    if device == "cpu":
        return
    torch.use_deterministic_algorithms(True)
    try:
        for workload in list_workloads():
            yield compare_recording(workload, device)
    finally:
        torch.use_deterministic_algorithms(False)
    workload = next(one for one in list_workloads() if one.name == "gpt")
    with DocumentRunner(RunnerSettings(device=device, memory_bytes=MEMORY)) as runner:
        runner.load(workload.model.document)
        answers = [runner.run(workload.model.parameters, workload.batch, SEED) for _ in range(2 * FIRST)]
        bits = {tuple((name, array.tobytes()) for name, array in sorted(one.items())) for one in answers}
        yield Line("graphs.child", len(bits) == 1 and runner.settings.graphs, f"goes on: {runner.settings.graphs}")


def compare_recording(workload: Workload, device: str) -> Line:
    """Passes by two seeds in turn, plain and replayed: each has the bits of its own seed's plain pass."""
    program, rows = Program(parse_document(workload.model.document)), len(workload.batch["y"])
    inputs = build_tensors(workload.model.parameters, device)
    passes = CapturedPasses(record_cuda_graph, lambda: True)
    found: dict[bytes, list[dict[str, bytes]]] = {}
    taken = []
    for number, captured in enumerate([None] * 4 + [passes] * (FIRST + 3)):
        seed = bytes([number % 2]) * 32  # a pass draws by its own, replayed too
        program.captured = captured
        begun = time.perf_counter()
        answer, buffers = mean_gradient(program, inputs, workload.batch, seed, (rows, rows), device)
        found.setdefault(seed, []).append({name: array.tobytes() for name, array in numpy_of(answer | buffers).items()})
        taken.append(time.perf_counter() - begun)
    same = all(bits == each[0] for each in found.values() for bits in each)
    note = f"{passes.replays} replays of 3; plain {taken[3] * 1e3:.2f} ms"
    return Line(f"graphs.{workload.name}", same and passes.replays == 3, note, taken[-1] * 1e3, "ms replayed")


def check_taken_memory(device: str) -> Iterator[Line]:
    """A model's answer does not depend on old contents of its memory, which the child leaves there on a card."""
    torch.use_deterministic_algorithms(True)
    try:
        for workload in list_workloads():
            program, rows = Program(parse_document(workload.model.document)), len(workload.batch["y"])
            found = []
            for byte in (None, 0xFF, 0x5A):
                torch.utils.deterministic.fill_uninitialized_memory = byte is None  # type: ignore[attr-defined]
                inputs = build_tensors(workload.model.parameters, device)
                if byte is not None:
                    _leave_bytes(byte, device)
                answer, buffers = mean_gradient(program, inputs, workload.batch, SEED, (rows, rows), device)
                found.append({name: array.tobytes() for name, array in numpy_of(answer | buffers).items()})
            same = [one == found[0] for one in found]
            yield Line(f"taken_memory.{workload.name}", all(same), f"filled, and left with two bytes: {same}")
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms(False)


def _leave_bytes(byte: int, device: str) -> None:
    """Fills blocks of many sizes, and frees them: torch takes the next tensors' memory from these."""
    sizes = [2**power for power in range(9, 26) for _ in range(8)]
    blocks = [torch.full((size,), byte, dtype=torch.uint8, device=device) for size in sizes]
    del blocks


def check_arena(device: str) -> Iterator[Line]:
    """Pages of a card's arena are registered, and bytes copied there and back are the same."""
    if device == "cpu":
        return
    place = Placement("w", "float32", (2**26,), 0)
    arena, values = PinnedArena(Arena.create().descriptor), torch.rand(2**26, device=device)
    arena.reserve(place.end)
    views = arena.views((place,))
    numpy_of({"w": values}, views)
    begun = time.perf_counter()
    numpy_of({"w": values}, views)
    taken = time.perf_counter() - begun
    same = torch.equal(build_tensors(views, device)["w"], values)
    pinned = torch.from_numpy(views["w"]).is_pinned()
    yield Line("arena.pinned", pinned and same, f"registered: {pinned}, same: {same}", place.end / taken / 1e9, "GB/s")
    arena.close()
