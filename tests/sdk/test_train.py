"""A module, a loss and a dataset of one's own, trained on a market that runs."""

import contextlib
import copy
import dataclasses
import html
import io
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from gradmarket import Market, TrainingJob
from gradmarket.cli import app
from gradmarket.client.client_errors import ServiceProblem
from gradmarket.commands.following import JobPaused
from gradmarket.data.inputs import columns_of
from gradmarket.data.pack import Cut, pack_dataset
from gradmarket.demo.service import Service
from gradmarket.market.errors import DocumentRefused, JobRefused, Refused
from gradmarket.market.manifest import Manifest, Partition
from gradmarket.market.terms import blob_digest
from gradmarket.sdk import planning
from gradmarket.sdk.job_handle import JobEnded, WatchTimeout
from gradmarket.sdk.rows import load_rows
from graphdoc import formats
from graphdoc.document.schema import parse_document as load_document
from graphdoc.encoding import canonical
from graphdoc.export import export_module, load_state
from graphdoc.formats import format_of
from requester.dataset import check_inputs
from tests.lanes import FULL
from tests.patience import wait_until
from tests.town import ALONE

ROOT = Path(__file__).parents[2]
QUIET = Console(file=io.StringIO())


def blobs(rows: int = 240) -> tuple[Tensor, Tensor]:
    """Three clouds in the plane, each a class."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(rows) % 3
    centres = torch.tensor([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    return centres[y] + 0.3 * torch.randn(rows, 2, generator=generator), y


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def bits(module: nn.Module) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in module.state_dict().items()}


@FULL
def test_the_commands_and_script_on_a_job_s_page_run(
    market: Market, served: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = blobs()
    job = market.train(network(), nn.CrossEntropyLoss(), (x, y), rounds=1, price="0.01 GRAD", replication=ALONE)
    job.watch(QUIET)
    page = httpx.get(f"{served.place.url}/jobs/{job.id}").text
    commands, script = (
        html.unescape(text) for text in re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page, re.S)[-2:]
    )
    (tmp_path / "lines.py").write_text(script)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(tmp_path / "lines.py"))
    assert printed.getvalue().startswith("finished all rounds are done {")
    monkeypatch.setenv("TOKEN", served.place.token or "")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    for command in commands.splitlines():
        subprocess.run(
            ["bash", "-euc", command.replace("curl ", "curl -fsS ", 1)],
            cwd=tmp_path,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    (downloaded,) = tmp_path.glob("*.safetensors")
    assert downloaded.stat().st_size > 0


def test_a_loss_that_is_no_number_is_refused_before_anything_is_sent(market: Market) -> None:
    def loss(out: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(out, y).mul(-1).log()

    before = len(list(market.jobs()))
    with pytest.raises(DocumentRefused, match="the loss of the data's own rows is nan"):
        market.train(network(), loss, blobs(), rounds=1, price="0.01 GRAD", replication=ALONE)
    assert len(list(market.jobs())) == before


@FULL
def test_a_watched_job_that_pauses_ends_with_the_command_that_mends_it(market: Market, served: Service) -> None:
    job = market.train(network(), nn.CrossEntropyLoss(), blobs(), rounds=500, price="0.0001 GRAD", replication=ALONE)
    try:
        with pytest.raises(WatchTimeout, match="after 0 s the job is"):
            job.watch(QUIET, (), 0)
        wait_until(lambda: job.state == "running")
        job.pause()
        with pytest.raises(JobPaused, match=f"paused by its requester; `gradmarket job resume {job.id}`"):
            job.watch(QUIET)
        done = CliRunner().invoke(app, ["job", "watch", job.id, "--market", served.place.url])
        assert done.exit_code == 1
        assert f"paused: paused by its requester (`gradmarket job resume {job.id}`)" in done.stdout
        job.fund("0.001 GRAD")
        assert job.state == "paused", "more money alone mends no pause that its requester wished for"
    finally:
        job.cancel()


def test_parameters_that_are_no_numbers_are_refused(market: Market) -> None:
    made = export_module(network(), nn.CrossEntropyLoss(), load_rows(blobs(), None).arrays, "fp32")
    state = dict(made.parameters)
    name = next(name for name, array in state.items() if array.dtype == np.float32)
    state[name] = np.full_like(state[name], np.nan)
    packed = pack_dataset(load_rows(blobs(), None).arrays, Cut(4096, formats.DEFAULT, 0.0, 0))
    fields = {
        "name": "nan",
        "step": {"rows": 10},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "rounds": 1,
        "price": "0.01 GRAD",
    }
    spec = planning._check_fields(fields | {"price": "1"}, None, measures=False)
    job = market._post_job(planning.ReadyJob(fields, spec, dataclasses.replace(made, parameters=state), packed), None)
    with pytest.raises(JobEnded, match=f"failed: .*model.parameters: {name} has a value that is not finite"):
        job.watch(QUIET)


def test_ten_lines_train_a_module_of_ones_own(market: Market) -> None:
    x, y = blobs()
    model, loss = network(), nn.CrossEntropyLoss()
    before = bits(model)
    job = market.train(
        model, loss, TensorDataset(x, y), optimizer={"name": "adamw", "lr": 0.1}, rows=100, rounds=4,
        price="0.01 GRAD", held_out=0.2, replication=ALONE, seed=0,
    )  # fmt: skip
    assert bits(model) == before, "a copy was published"
    lines = io.StringIO()
    ended = job.watch(Console(file=lines))
    assert "rounds done 4/4" in lines.getvalue()
    assert ended.costs.price == str(10**16)
    assert job.state == "finished"
    assert job.metrics["accuracy"] > 0.95
    job.load_into(model)
    model.eval()
    assert loss(model(x), y) < 0.6
    assert int(model[1].num_batches_tracked) == 4
    with pytest.raises(Refused, match="not the model"):
        job.load_into(nn.Linear(2, 3))
    assert [round.number for round in market.job(job.id).rounds()] == list(range(4))


@FULL
def test_tasks_of_padded_texts_are_one_gradient_over_all_targets(market: Market) -> None:
    """One step of four tasks of two rows, by torch alone: the gradient of all eight rows at once."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randint(0, 16, (2, 8, 12), generator=generator)
    for row, length in enumerate((1, 2, 3, 4, 6, 8, 10, 12)):
        y[row, length:] = -100
    torch.manual_seed(0)
    model, trained = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16)), {"name": "sgd", "lr": 1.0}

    def loss(scores: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten())

    alone = copy.deepcopy(model)
    torch.optim.SGD(alone.parameters(), lr=1.0).zero_grad()
    before = loss(alone(x), y)
    before.backward()
    fields = {"rounds": 1, "price": 10**9, "rows": 2, "held_out": 0.0, "replication": ALONE, "seed": 0}
    job = market.train(model, loss, (x, y), optimizer=trained, tasks_per_round=4, sampling="epochs", **fields)
    job.watch(QUIET)
    job.load_into(model)
    for found, parameter in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(found, parameter - parameter.grad, atol=1e-6, rtol=1e-6)
    assert job.rounds()[0].loss == pytest.approx(before.item(), rel=1e-6)
    with pytest.raises(JobRefused, match=r"aggregator.*rows have weights.*take mean"):
        market.train(model, loss, (x, y), optimizer=trained, tasks_per_round=4, aggregator={"name": "median"}, **fields)


@FULL
def test_a_saved_hugging_face_dataset_trains_a_regression_in_parquet(market: Market, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((90, 2)).astype(np.float32)
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "sum": x.sum(1)})
    with pa.ipc.new_stream(tmp_path / "data-00000-of-00001.arrow", table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    model = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    job = market.train(
        model, nn.functional.mse_loss, tmp_path, target="sum", optimizer={"name": "sgd", "lr": 0.3}, rows=60,
        rounds=4, price=10**9, partition_format="parquet", replication=ALONE, seed=0,
    )  # fmt: skip
    losses = [round.loss for round in (job.watch(QUIET), job.rounds())[1]]
    assert losses[-1] < losses[0] / 2


def test_partitions_are_cut_for_the_step_that_is_given_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts: list[Cut] = []

    def stop(_arrays: Any, cut: Cut, *_others: Any) -> None:
        cuts.append(cut)
        raise Refused("enough is known")

    monkeypatch.setattr(planning, "pack_dataset", stop)
    step = {"kind": "local", "rows": 5000, "steps": 2, "optimizer": {"lr": 0.1}}
    with Market("http://127.0.0.1:9", "nobody") as nowhere, pytest.raises(Refused, match="enough"):
        nowhere.train(network(), nn.CrossEntropyLoss(), TensorDataset(*blobs()), rounds=1, price=1, step=step)
    assert [cut.rows for cut in cuts] == [10_000]


def requester_of(served: Service) -> httpx.Client:
    return httpx.Client(base_url=served.place.url, headers={"Authorization": f"Bearer {served.place.token}"})


def post(served: Service, **fields: Any) -> httpx.Response:
    """Posts fields as anybody may send with curl."""
    job = {
        "name": "by curl", "model": {"architecture": "mlp", "arguments": {"hidden": [4]}}, "step": {"rows": 8},
        "optimizer": {"lr": 0.1}, "rounds": 1, "price": "1000000000", "replication": ALONE, **fields,
    }  # fmt: skip
    return requester_of(served).post("/v1/jobs", json=job)


def posted(served: Service, **fields: Any) -> tuple[httpx.Client, str]:
    """(The client, the job's id)."""
    answer = post(served, **fields)
    assert answer.status_code == 201, answer.text
    return requester_of(served), str(answer.json()["id"])


def put(served: Service, data: bytes) -> str:
    digest = blob_digest(data)
    headers = {"Authorization": f"Bearer {served.place.token}"}
    assert httpx.put(f"{served.place.url}/v1/blobs/{digest}", content=data, headers=headers).status_code == 201
    return digest


def ended(client: httpx.Client, job: str) -> dict[str, Any]:
    def over() -> dict[str, Any] | None:
        now: dict[str, Any] = client.get(f"/v1/jobs/{job}").json()
        return now if now["state"] in ("finished", "failed", "cancelled") else None

    return wait_until(over) or {}


def partition(kind: str, seed: int) -> tuple[bytes, Partition]:
    generator = np.random.default_rng(seed)
    arrays = {"x": generator.standard_normal((16, 3)).astype(np.float32), "y": generator.integers(0, 4, 16)}
    data = format_of(kind).write(arrays)
    digest = blob_digest(data)
    name = f"{kind}-{seed}"
    return data, Partition(name=name, link=f"/v1/blobs/{digest}", digest=digest, bytes=len(data), rows=16, format=kind)


INPUTS = columns_of({"x": np.zeros((1, 3), np.float32), "y": np.array([3])})


def manifest_of(*partitions: Partition) -> bytes:
    return canonical(Manifest(inputs=INPUTS, partitions=partitions).model_dump(mode="json"))


@FULL
def test_a_manifest_with_every_format_trains_a_ready_model_by_curl_alone(served: Service) -> None:
    made = [partition(kind, 0) for kind in formats.list_format_names()]
    for data, _ in made:
        put(served, data)
    manifest = put(served, manifest_of(*(part for _, part in made)))
    held_out = {"partition": "parquet-0", "metric": "accuracy"}
    client, job = posted(served, data={"manifest": manifest}, tasks_per_round=4, evaluation=held_out)
    now = ended(client, job)
    assert (now["state"], now["accepted"]) == ("finished", 4), now["reason"]
    assert 0 <= now["metrics"]["accuracy"] <= 1


@FULL
def test_a_dataset_is_packed_uploaded_and_trained_on_by_command(
    served: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADMARKET_DATA", str(served.data))
    x, y = blobs(60)
    np.savez(tmp_path / "rows.npz", x=x.numpy(), y=y.numpy())

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == 0, done.stderr
        return done.stdout.strip()

    packed = str(tmp_path / "packed")
    run("data", "pack", str(tmp_path / "rows.npz"), "--rows-per-partition", "25", "--held-out", "0.2", "-o", packed)
    job = {
        "name": "packed", "model": {"architecture": "mlp", "arguments": {"hidden": [4]}}, "step": {"rows": 8},
        "data": {"manifest": run("data", "upload", packed)}, "evaluation": {"partition": "test"},
        "optimizer": {"lr": 0.1}, "rounds": 1, "price": "1000000000", "replication": ALONE,
    }  # fmt: skip
    (tmp_path / "job.json").write_text(json.dumps(job))
    posted = run("job", "submit", str(tmp_path / "job.json"), "--yes")
    run("job", "watch", posted)
    assert json.loads(run("job", "show", posted, "--json"))["accepted"] == 1


def lying(body: bytes, **changed: Any) -> bytes:
    told = json.loads(body)
    told["partitions"][0] |= changed
    return canonical(told)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"bytes": 7}, "bytes, not 7"),
        ({"rows": 17}, "cannot be read"),
        ({"format": "npz"}, "cannot be read"),
        ({"link": "/v1/blobs/blake3:" + "1" * 64}, "its link names"),
    ],
)
def test_a_manifest_that_lies_ends_its_job_with_the_reason(served: Service, changed: Any, why: str) -> None:
    (first, held_out), (second, rest) = partition("jsonl", 1), partition("npy", 1)
    put(served, first)
    put(served, second)
    manifest = put(served, lying(manifest_of(held_out, rest), **changed))
    evaluation = {"partition": held_out.name, "metric": "loss"}
    now = ended(*posted(served, data={"manifest": manifest}, evaluation=evaluation))
    assert now["state"] == "failed"
    assert re.search(why, now["reason"]), now["reason"]


@pytest.mark.parametrize(
    ("changed", "field", "why"),
    [
        ({"format": "pickle"}, "data.manifest.partitions.0.format", "choose one of jsonl"),
        ({"rows": 0}, "data.manifest.partitions.0.rows", "greater than or equal to 1"),
    ],
)
def test_a_manifest_that_is_none_is_refused_as_its_job_is_posted(
    served: Service, changed: Any, field: str, why: str
) -> None:
    manifest = put(served, lying(manifest_of(partition("jsonl", 1)[1]), **changed))
    answer = post(served, data={"manifest": manifest})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert why in answer.json()["detail"]


def test_a_partition_that_nobody_uploaded_ends_its_job(served: Service) -> None:
    _, part = partition("npz", 99)
    now = ended(*posted(served, data={"manifest": put(served, manifest_of(part))}))
    assert now["state"] == "failed"
    assert "upload it first" in now["reason"]


def test_a_model_that_reads_something_else_is_refused_by_the_inputs_name() -> None:
    manifest = Manifest(inputs=INPUTS, partitions=(partition("npz", 2)[1],))
    check_inputs(manifest, manifest.batch(1))
    wide = {**manifest.batch(1), "x": ((1, 2), "float32")}
    with pytest.raises(JobRefused, match=r"x: the model reads float32\[2\] a row, it has float32\[3\] a row"):
        check_inputs(manifest, wide)
    with pytest.raises(JobRefused, match=r"mask: the model reads float32\[2\] a row, it has nothing"):
        check_inputs(manifest, {**manifest.batch(1), "mask": ((1, 2), "float32")})
    with pytest.raises(JobRefused, match=r"y: the model reads nothing"):
        check_inputs(manifest, {"x": manifest.batch(1)["x"]})


def test_a_cancelled_job_raises_job_ended(served: Service, market: Market) -> None:
    _, posted_id = posted(served, data={"ready": "digits"}, rounds=1000)
    job = market.job(posted_id)
    job.cancel()
    assert job.state == "cancelled"
    with pytest.raises(JobEnded, match="cancelled by its requester"):
        job.watch(QUIET)
    assert job.id in [one.id for one in market.jobs("cancelled")]
    assert isinstance(job, TrainingJob)


def test_wrong_arguments_are_refused_before_anything_is_sent(market: Market) -> None:
    x, y = blobs(40)

    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = torch.cat([x, x[:, :1]], 1)
            return scores[scores[:, 0].nonzero().squeeze(1)]

    before = len(list(market.jobs()))
    cases: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
        (Odd(), (x, y), {}, DocumentRefused, "the model"),
        (network(), (x, y), {"roundz": 1}, Refused, "roundz"),
        (network(), (x, y), {"price": "0.01 EUR"}, Refused, "0.01 GRAD"),
        (network(), (x, y), {"price": "1.5"}, Refused, "no amount"),
        (network(), (x, y), {"held_out": 1.0}, Refused, "fraction from 0 to below 1"),
        (network(), (x, y), {"partition_format": "pickle"}, Refused, "choose one of jsonl"),
        (network(), x, {}, Refused, "a pair"),
        (network(), (x, y[:7]), {}, Refused, "differ in their number of rows"),
        (network(), {"x": x, "z": y}, {}, Refused, "name its target"),
        (network(), {"x": np.array([{}]), "y": y[:1]}, {}, Refused, "not an array of numbers"),
    ]
    for module, dataset, fields, kind, why in cases:
        with pytest.raises(kind, match=why):
            market.train(module, nn.CrossEntropyLoss(), dataset, **{"rounds": 1, "price": 1, **fields})
    with pytest.raises(ServiceProblem):
        market.job("nothing")
    assert len(list(market.jobs())) == before


def test_datasets_of_every_kind_are_the_same_rows() -> None:
    x, y = blobs(10)
    pairs: Any = [(x[index], y[index]) for index in range(10)]

    class Pairs(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> Any:
            return pairs[index]

    for dataset in ((x, y), TensorDataset(x, y), {"x": x.numpy(), "y": y.numpy()}, Pairs()):
        arrays = load_rows(dataset).arrays
        assert (arrays["x"] == x.numpy()).all()
        assert (arrays["y"] == y.numpy()).all()


def test_a_module_may_take_several_inputs_by_name() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(2, 3), nn.Linear(4, 3)

        def forward(self, right: Tensor, left: Tensor) -> Tensor:
            scores: Tensor = self.left(left) + self.right(right)
            return scores

    x, y = blobs(12)
    arrays = load_rows({"left": x, "right": torch.cat([x, x], 1), "y": y}).arrays
    document = load_document(export_module(Sum(), nn.functional.cross_entropy, arrays).document)
    assert document.batch(5) == {
        "left": ((5, 2), "float32"),
        "right": ((5, 4), "float32"),
        "y": ((5,), "int64"),
    }


def test_tied_weights_are_loaded_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.second.weight = self.first.weight

    tied = Tied()
    load_state(tied, {"first.weight": np.eye(2, dtype=np.float32)})
    assert torch.equal(tied.second.weight, torch.eye(2))
    with pytest.raises(Refused, match=r"first\.weight"):
        load_state(tied, {"first.weight": np.zeros((3, 3), np.float32)})


def test_the_package_is_light_until_its_door_is_used() -> None:
    code = "import sys, gradmarket; assert 'torch' not in sys.modules and not hasattr(gradmarket, 'Nothing')"
    subprocess.run([sys.executable, "-c", code], check=True)


@FULL
def test_the_tabular_example_runs(
    served: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRADMARKET_DATA", str(served.data))
    runpy.run_path(str(ROOT / "examples" / "tabular.py"))["main"](3, replication=ALONE, seed=0)
    assert float(capsys.readouterr().out.split()[-1]) > 0.6
