"""`gradmarket job plan`: what a job takes, by its own figures."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.client import RequesterClient
from gradmarket.commands.resources import CARDS, smallest_card
from gradmarket.demo import service
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.service import Service
from gradmarket.market.data.manifest import Column, Manifest, Partition
from gradmarket.market.job import canonical
from tests.handmade import encoded, linear, node, value, with_nodes

READY: dict[str, Any] = {
    "name": "planned",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "evaluation": {"partition": "test"},
    "step": {"kind": "local", "steps": 5, "rows": 16, "microbatch": 10, "optimizer": {"lr": 0.1}},
    "optimizer": {"lr": 0.7, "name": "nesterov"},
    "uplink": {"codec": "bf16"},
    "rounds": 3,
    "tasks_per_round": 2,
    "price": "7",
}
PARAMETERS = 64 * 8 + 8 + 8 * 10 + 10


def planned(folder: Path, spec: dict[str, Any], *options: str) -> dict[str, Any]:
    (folder / "job.json").write_text(json.dumps(spec))
    answer = CliRunner().invoke(app, ["job", "plan", str(folder / "job.json"), "--json", *options])
    assert answer.exit_code == 0, answer.output
    told: dict[str, Any] = json.loads(answer.stdout)
    return told


def test_a_ready_model_is_made_and_measured_here(tmp_path: Path) -> None:
    told = planned(tmp_path, READY, "--tflops", "2", "--mbit", "8", "--workers", "3")
    takes = told["takes"]
    passes, rows = 5 * 2, 10
    assert takes["operations"] >= passes * 3 * 2 * rows * (64 * 8 + 8 * 10)
    assert takes["download"] == 4 * PARAMETERS
    assert takes["upload"] == 2 * (PARAMETERS + 1)
    assert takes["replicas"] == 3 * 2 * 3
    assert takes["traffic_up"] == 3 * 2 * takes["upload"]
    assert takes["traffic_down"] >= takes["replicas"] * takes["download"] + 3 * 3 * takes["partition"]
    link = 8 * (takes["download"] + takes["upload"]) / 8e6
    assert takes["task_seconds"] == pytest.approx(takes["operations"] / 2e12 + link)
    assert takes["job_seconds"] == pytest.approx(3 * 2 * takes["task_seconds"])
    assert takes["card"] == f"{CARDS[0][0]} ({CARDS[0][1]} GB)"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Service]:
    children = DemoProcesses(tmp_path / "logs")
    try:
        yield service.start(children, tmp_path / "data")
    finally:
        children.end()
        service.stop_chain(tmp_path / "data")


def test_an_uploaded_document_is_taken_from_the_service(served: Service, tmp_path: Path) -> None:
    with RequesterClient(served.place.url, served.place.token) as there:
        document = there.upload(encoded(linear()))
        summing = there.upload(encoded(with_nodes(node("cumsum.default", [value(1), 1, None], 3))))
        partition = Partition(name="a", link="https://data/a", digest=document, bytes=10**9, rows=64)  # type: ignore[arg-type]
        inputs = {"x": Column(dtype="float32", shape=(3,)), "y": Column(dtype="float32", shape=(1,))}
        manifest = canonical(Manifest(inputs=inputs, partitions=(partition,)).model_dump(mode="json"))
        data = {"manifest": there.upload(manifest)}
    token = served.place.token or ""
    spec = {**READY, "model": {"document": document, "parameters": document}, "data": data, "step": {"rows": 16}}
    there_too = ("--market", served.place.url, "--token", token)
    takes = planned(tmp_path, spec | {"evaluation": None}, *there_too)["takes"]
    assert (takes["download"], takes["upload"], takes["partition"]) == (12, 2 * 4, 10**9)
    assert takes["operations"] > 0
    assert takes["card"]
    assert takes["only_on_cpu"] == ""
    spec["model"] = {"document": summing, "parameters": summing}
    takes = planned(tmp_path, spec | {"evaluation": None}, *there_too)["takes"]
    assert takes["card"] == ""
    assert takes["only_on_cpu"].startswith("cumsum.default: ")


def test_the_card_is_the_smallest_that_fits() -> None:
    assert [size for _, size in CARDS] == sorted(size for _, size in CARDS)
    assert smallest_card(0) == "RTX 3050 (8 GB)"
    assert smallest_card(8 * 10**9) == "RTX 3060 (12 GB)"
    assert smallest_card(50 * 10**9) == "H100 (80 GB)"
    assert smallest_card(200 * 10**9) == ""
