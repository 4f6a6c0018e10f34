"""`make test-cuda` without a card: one line, and the processor plays the twin of each check."""

import json
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import torch

from benchmarks.cards import __main__ as cards_main
from benchmarks.cards import checks, hosts, paths, speed
from benchmarks.cards.__main__ import NEEDED
from benchmarks.cards.checks import check_operators, check_probes, run_checks
from benchmarks.cards.hosts import check_hosts, check_loads, check_slots
from benchmarks.cards.lines import Line, measure_distance
from benchmarks.cards.paths import (
    check_codecs,
    check_local_steps,
    check_optimizers,
    check_payload,
    check_taken_memory,
    check_tf32,
)
from benchmarks.cards.speed import measure_card
from benchmarks.cards.workloads import list_workloads
from graphdoc.errors import RunnerCrashed
from graphdoc.runner.driver import MANAGEMENT as MANAGEMENT_NAME
from graphdoc.runner.driver import Management
from tests.kit.stand_in_card import install_driver, make_nodes
from tests.kit.stand_in_graph import record_on_tape
from tests.lanes import FULL
from tests.patience import PATIENCE_S
from tests.source_tree import ROOT


@FULL
@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a card")
def test_a_machine_without_a_driver_prints_one_line() -> None:
    command = [sys.executable, "-m", "benchmarks.cards"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("make test-cuda: skipped, no card: no driver: ")
    assert done.stdout.count("\n") == 1


@FULL
def test_a_card_s_machine_needs_no_library_but_those_it_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [line for each in (project["dependencies"], *project["optional-dependencies"].values()) for line in each]
    ours = {re.split(r"[^\w.-]", line)[0] for line in asked} - {*NEEDED, "gradmarket", "setuptools"}
    modules = {module for module, packages in packages_distributions().items() if ours & set(packages)}
    assert {"coincurve", "numba", "httpx"} <= modules
    code = """
import sys
import benchmarks.cards.checks, benchmarks.cards.probes, benchmarks.cuda, gradmarket.runner.step_child
print(*{name.partition(".")[0] for name in sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert modules & set(done.stdout.split()) == set()


@FULL
def test_a_processor_measures_the_twin_of_each_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "MEASURED", speed.MEASURED[-1:])
    lines = {line.name: line for line in measure_card("cpu", time.monotonic() + PATIENCE_S)}
    assert [line for line in lines.values() if line.ok is False] == []
    assert {"cuda.host_share_of_task.gpt2_bf16", "cuda.of_eager.gpt2_bf16", "cuda.local_of_loop.gpt2_bf16"} <= set(
        lines
    )
    (late,) = measure_card("cpu", time.monotonic())
    assert (late.ok, late.note) == (False, "no time was left")


@FULL
def test_probes_are_refused_while_a_processor_computes() -> None:
    (line,) = check_probes("cpu")
    if "'files'" not in line.note or "'calls'" not in line.note:
        pytest.skip(line.note)
    assert line.note.endswith("not refused: []")


def test_operators_compute_where_no_card_raises() -> None:
    lines = list(check_operators("cpu"))
    assert [line.name for line in lines if not line.ok] == []
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("check", [check_optimizers, check_tf32, pytest.param(check_taken_memory, marks=FULL)])
def test_the_checks_of_the_host_s_work_on_a_card_pass_on_the_cpu(check: Callable[[str], Iterator[Line]]) -> None:
    lines = list(check("cpu"))
    assert len(lines) > 2
    assert [line for line in lines if not line.ok] == []


@FULL
@pytest.mark.parametrize("check", [check_hosts, check_slots])
def test_a_host_s_children_compute_the_same(check: Callable[[str], Iterator[Line]]) -> None:
    (line,) = check("cpu")
    assert line.ok, line.note


def test_the_checks_of_card_loads_run_on_the_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", install_driver(tmp_path / "lib", make_nodes(tmp_path / "root")))
    library = str(tmp_path / "lib" / MANAGEMENT_NAME)
    monkeypatch.setattr(hosts, "Management", lambda: Management(library))
    lines = {line.name: line.ok for line in check_loads("cuda")}
    assert lines == {"loads.0": True, "loads.1": False}, "the second card of the stand-in tells no watts"


@FULL
@pytest.mark.parametrize("check", [check_codecs, check_payload])
def test_the_checks_of_packing_on_a_card_pass_on_the_cpu(check: Callable[[str], Iterator[Line]]) -> None:
    lines = list(check("cpu"))
    assert len(lines) >= 2
    assert [line for line in lines if not line.ok] == []


def test_recorded_passes_of_a_document_that_draws_hold_on_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "record_cuda_graph", record_on_tape)
    line = paths.compare_recording(next(one for one in list_workloads() if one.name == "mlp"), "cpu")
    assert (line.ok, line.note.partition(";")[0]) == (True, "3 replays of 3")


@FULL
def test_local_steps_hold_on_the_twin() -> None:
    (line,) = check_local_steps("cpu")
    assert (line.ok, line.value) == (True, 0.0)


def test_a_check_that_fails_or_has_no_time_is_a_line_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_device: str) -> Iterator[Line]:
        yield Line("before", True)
        raise RunnerCrashed("it ended")

    names = [name for name in vars(checks) if name.startswith("check_")]
    for name in names:
        monkeypatch.setattr(checks, name, fail if name == "check_start" else lambda _device: iter([Line("ran", True)]))
    lines = list(run_checks("cpu", float("inf")))
    assert [line.ok for line in lines] == [True, False, *[True] * (len(names) - 1)]
    assert "it ended" in lines[1].note
    assert [line.note for line in run_checks("cpu", float("-inf"))] == ["no time was left"] * len(names)


def test_the_file_has_every_line_and_a_figure_for_each_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = Line("cuda.tokens_s.gpt2_bf16", None, "the document alone", 2.5, "tokens/s")
    late = Line("cuda.gpt2_bf16", False, "no time was left")
    monkeypatch.setattr(checks, "run_checks", lambda _device, _deadline: iter([Line("held", True)]))
    monkeypatch.setattr(speed, "measure_card", lambda _device, _deadline: iter([measured, late]))
    monkeypatch.setattr(sys, "argv", ["cards", "--device", "cpu", "--bench", "--json", str(tmp_path / "found.json")])
    assert cards_main.main() == 1
    assert "2 of 3 hold; FAILED: cuda.gpt2_bf16" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert [line["name"] for line in found["found"]] == ["held", measured.name, late.name]
    ((figure),) = found["figures"]
    assert (figure["name"], figure["value"]) == (measured.name, 2.5)


def test_the_distance_is_of_the_largest_element() -> None:
    one, other = {"w": torch.tensor([1.0, 4.0]).numpy()}, {"w": torch.tensor([1.5, 4.0]).numpy()}
    assert measure_distance(one, other) == 0.125
    assert measure_distance(one, one) == 0.0
