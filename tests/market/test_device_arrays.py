"""Optimizers on tensors of a device, whose twin here is the processor: the bits are those of numpy's loops."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient import optimizers
from gradmarket.market.gradient.arrays import CHUNK
from gradmarket.market.gradient.norm import clip_gradient, compute_norm
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.step import InnerOptimizer, LocalStep, WindowStep
from gradmarket.runner import device_arrays, window_state
from gradmarket.runner.device_arrays import (
    clip_on_device,
    compute_device_norm,
    download_arrays,
    upload_arrays,
)
from gradmarket.runner.steps import compute_step, local
from graphdoc import plugins
from graphdoc.document.interpret import Program
from graphdoc.document.publish import compute_classification_loss, publish_module
from graphdoc.document.schema import parse_document

Arrays = dict[str, np.ndarray]
ELEMENTWISE = [name for name in plugins.list_plugin_names(optimizers.__name__) if load_optimizer(name).ELEMENTWISE]
NO_DECAY = {"pattern": "*.bias", "weight_decay": 0.0}
SHAPES: dict[str, tuple[int, ...]] = {"a.weight": (37, 91), "a.bias": (91,), "scale": ()}


def draw_arrays(seed: int, spread: float = 1.0) -> Arrays:
    draw = np.random.default_rng(seed)
    return {name: np.float32(draw.normal(size=shape) * spread).reshape(shape) for name, shape in SHAPES.items()}


def get_bits(arrays: dict[str, Any]) -> dict[str, bytes]:
    return {name: np.asarray(array).tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1, "groups": (NO_DECAY,)}])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_steps_have_the_bits_of_the_host_s(name: str, settings: dict[str, Any]) -> None:
    rule = load_optimizer(name)
    chosen = rule.Settings(**settings)
    parameters = draw_arrays(1)
    memory: dict[str, Any] = rule.start(parameters, chosen)
    there, held = upload_arrays(parameters, "cpu"), upload_arrays(memory, "cpu")
    for number in range(5):
        gradient = draw_arrays(10 + number, 10.0 ** (number - 3))
        parameters, memory = rule.step(parameters, gradient, memory, 0.01 / (1 + number), chosen)
        there, held = rule.step(there, upload_arrays(gradient, "cpu"), held, 0.01 / (1 + number), chosen)
    assert get_bits(download_arrays(there)) == get_bits(parameters)
    assert get_bits(download_arrays(held)) == get_bits(memory)
    assert all(isinstance(array, device_arrays.DeviceArray) for array in there.values())


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_a_gradient_that_is_no_number_stays_none(name: str) -> None:
    rule = load_optimizer(name)
    settings, parameters = rule.Settings(), {"p": np.ones(3, np.float32)}
    given = parameters, {"p": np.array([1.0, np.nan, 0.0], np.float32)}, rule.start(parameters, settings)
    host = rule.step(*given, 0.1, settings)[0]["p"]
    parameters_there, gradient_there, memory_there = (upload_arrays(each, "cpu") for each in given)
    there: Any = rule.step(parameters_there, gradient_there, memory_there, 0.1, settings)[0]["p"]
    assert np.array_equal(host, there.tensor.numpy(), equal_nan=True)


@pytest.mark.parametrize("sizes", [(1,), (CHUNK,), (CHUNK + 1, 5), (3 * CHUNK - 7, 2, CHUNK)])
def test_the_norm_and_what_it_clips_have_the_bits_of_the_host_s(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_arrays, "SLAB", 2 * CHUNK)
    draw = np.random.default_rng(3)
    gradient = {str(place): draw.normal(size=size).astype(np.float32) for place, size in enumerate(sizes)}
    there = upload_arrays(gradient, "cpu")
    assert compute_device_norm(there) == compute_norm(gradient.values())
    for limit in (0.5, 1e6):
        assert get_bits(download_arrays(clip_on_device(there, limit))) == get_bits(clip_gradient(gradient, limit))


def test_joined_parameters_refuse_what_has_another_shape_and_keep_each_decay() -> None:
    rule = load_optimizer("sgd")
    settings = rule.Settings(momentum=0.9, groups=({"pattern": "b", "weight_decay": -0.0},))
    parameters = {name: torch.full((3,), -0.0) for name in "ab"}
    joined = device_arrays.JoinedParameters(parameters, rule, settings)
    with pytest.raises(PayloadRefused, match="a has the shape"):
        joined.join_memory({"momentum/a": np.zeros(5, np.float32), "momentum/b": np.zeros(1, np.float32)}, "cpu")
    there, host = joined.join(parameters), {name: tensor.numpy() for name, tensor in parameters.items()}
    stepped = joined.cut(rule.step(there, joined.join(parameters), joined.start_memory(there), 0.1, settings)[0])
    wanted = rule.step(host, host, rule.start(host, settings), 0.1, settings)[0]
    assert {name: tensor.numpy().tobytes() for name, tensor in stepped.items()} == get_bits(wanted)


@dataclass(frozen=True)
class Task:
    program: Program
    state: Arrays
    batch: Arrays


@pytest.fixture(scope="module")
def task() -> Task:
    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(12, 20), nn.BatchNorm1d(20), nn.Tanh(), nn.Linear(20, 4))
    x, y = torch.randn(32, 12), torch.arange(32) % 4
    made = publish_module(module, compute_classification_loss, (x, y))
    return Task(Program(parse_document(made.document)), dict(made.parameters), {"x": x.numpy(), "y": y.numpy()})


def take_steps(task: Task, step: LocalStep, on_device: bool, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    with monkeypatch.context() as patched:
        patched.setattr(local, "runs_on_device", lambda _step, _device: on_device)
        return get_bits(compute_step(task.program, task.state, task.batch, bytes(range(32)), step))


@pytest.mark.parametrize("more", [{}, {"proximal": 0.5}, {"rewarm": 2}])
@pytest.mark.parametrize("optimizer", [{"name": "adamw", "lr": 0.01, "clip": 0.05}, {"name": "sgd", "lr": 0.1}])
def test_local_steps_of_a_device_have_the_bits_of_the_host_s(
    task: Task, optimizer: dict[str, Any], more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = LocalStep(kind="local", rows=8, steps=4, optimizer=InnerOptimizer(**optimizer), **more)
    assert take_steps(task, step, True, monkeypatch) == take_steps(task, step, False, monkeypatch)


def test_a_window_of_a_device_goes_on_from_its_memory(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    step = LocalStep(kind="local", rows=8, steps=4, window=1, optimizer=InnerOptimizer(name="adamw", lr=0.01))
    own = build_layout(task.program.document)
    state = dict(task.state)
    for part in (range(1), range(1, 2)):
        window, ends = WindowStep.of(step, part), []
        batch = {name: array[8 * part.start : 8 * part.stop] for name, array in task.batch.items()}
        before = window_state.build_start_state(own, state, step) | state
        for on_device in (True, False):
            monkeypatch.setattr(local, "runs_on_device", lambda _step, _device, chosen=on_device: chosen)
            ends.append(compute_step(task.program, before, batch, bytes(32), window))
        assert get_bits(ends[0]) == get_bits(ends[1])
        state |= ends[0]
    assert int(state["memory:steps"]) == 2


def test_only_a_card_has_its_optimizer_there_and_only_an_elementwise_one() -> None:
    chosen = {
        (name, device): local.runs_on_device(
            LocalStep(kind="local", rows=1, steps=1, optimizer=InnerOptimizer(name=name, lr=0.1)), device
        )
        for name in ("adamw", "muon")
        for device in ("cpu", "cuda", "cuda:1")
    }
    assert {key for key, there in chosen.items() if there} == {("adamw", "cuda"), ("adamw", "cuda:1")}
