"""The commands of a requester, against a service of their own."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from blake3 import blake3
from typer.testing import CliRunner, Result

from gradmarket.cli import COMMANDS, app
from gradmarket.client import RequesterClient
from gradmarket.commands import doctor
from gradmarket.commands.checkup import CheckResult
from gradmarket.demo import service
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.service import Service
from gradmarket.market.manifest import Column, Manifest, Partition
from graphdoc.encoding import canonical
from tests.e2e.test_plan_resources import READY, planned
from tests.handmade import encoded, linear, node, value, with_nodes

JOB: dict[str, Any] = {
    "name": "a job by hand",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "step": {"rows": 16},
    "optimizer": {"lr": 0.1},
    "rounds": 3,
    "replication": {"name": "fixed"},
    "price": "2000000000000000000",
}
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    children = DemoProcesses(folder / "logs")
    try:
        yield service.start_service(children, folder / "data")
    finally:
        children.end()
        service.stop_chain(folder / "data")


@pytest.fixture
def run(served: Service, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`gradmarket ARGUMENTS` on the machine of the service."""
    monkeypatch.setenv("GRADMARKET_DATA", str(served.data))
    return lambda *arguments, **options: CliRunner().invoke(app, list(arguments), **options)


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    def write(**changed: Any) -> str:
        path = tmp_path / "job.json"
        path.write_text(json.dumps({**JOB, **changed}))
        return str(path)

    return write


@pytest.fixture
def posted(run: Run, file: Callable[..., str]) -> str:
    return run("job", "submit", file(), "--yes").stdout.strip()


def test_submit_prints_its_highest_cost_and_its_readers_first(run: Run, file: Callable[..., str]) -> None:
    done = run("job", "submit", file(), "--yes")
    assert done.exit_code == 0
    assert "costs at most 30 GRAD" in done.stderr
    assert "Workers see the model and the training data" in done.stderr
    job = json.loads(run("job", "show", done.stdout.strip(), "--json").stdout)
    assert job["name"] == JOB["name"]


def test_a_budget_is_what_it_costs_at_most(run: Run, file: Callable[..., str]) -> None:
    assert "costs at most 6 GRAD" in run("job", "submit", file(budget="6000000000000000000"), "--yes").stderr


def test_nothing_is_posted_that_nobody_agreed_to(run: Run, file: Callable[..., str]) -> None:
    before = run("job", "list", "--json").stdout
    done = run("job", "submit", file())
    assert (done.exit_code, done.stdout) == (2, "")
    assert "add --yes" in done.stderr
    assert run("job", "list", "--json").stdout == before


def test_a_job_comes_by_standard_input_too(run: Run) -> None:
    assert run("job", "submit", "-", "--yes", "--json", input=json.dumps(JOB)).exit_code == 0
    assert run("job", "submit", "-", "--yes", input="[]").exit_code == 2
    assert run("job", "submit", "-", "--yes", input="{").exit_code == 2


def test_a_wrong_field_is_named_before_anything_is_sent(run: Run, file: Callable[..., str]) -> None:
    done = run("job", "submit", file(roundz=4), "--yes")
    assert done.exit_code == 2
    assert "roundz" in done.stderr


def test_the_service_s_refusal_is_printed_with_its_field(run: Run, file: Callable[..., str]) -> None:
    done = run("job", "submit", file(model={"architecture": "perceptron"}), "--yes")
    assert done.exit_code == 2
    assert "model.architecture" in done.stderr
    assert "mlp" in done.stderr


def test_a_budget_is_raised_by_whole_units(run: Run, posted: str) -> None:
    before = json.loads(run("job", "show", posted, "--json").stdout)["costs"]["budget"]
    done = run("job", "fund", posted, "5000000000", "--json")
    assert int(json.loads(done.stdout)["costs"]["budget"]) == int(before) + 5_000_000_000
    odd = run("job", "fund", posted, "1")
    assert odd.exit_code == 2
    assert "amount" in odd.stderr


def test_the_books_of_a_job_sum_to_zero_and_add_up(run: Run, posted: str) -> None:
    done = run("job", "ledger", posted, "--json")
    books = json.loads(done.stdout)["books"]
    assert (done.exit_code, books["balanced"], books["differences"]) == (0, True, [])
    assert sum(map(int, books["accounts"].values())) == 0
    assert run("job", "ledger", posted, "--csv").stdout.startswith("kind,debit,credit,amount,worker,task")
    assert run("job", "ledger", posted).exit_code == 0
    assert "no job" in run("job", "ledger", "0000").stderr


def test_the_calibration_of_an_exact_job_has_no_thresholds(run: Run, posted: str) -> None:
    assert "this one's is exact" in run("job", "calibration", posted).stdout
    assert json.loads(run("job", "calibration", posted, "--json").stdout)["pairs"] == []
    assert "no job" in run("job", "calibration", "0000").stderr


def test_a_job_is_steered(run: Run, posted: str) -> None:
    done = run("job", "cancel", posted, "--json")
    assert json.loads(done.stdout)["state"] == "cancelled"
    again = run("job", "resume", posted)
    assert again.exit_code == 2
    assert "409" in again.stderr


def test_watching_a_cancelled_job_ends_with_one(run: Run, posted: str) -> None:
    run("job", "cancel", posted)
    plain, as_json = run("job", "watch", posted), run("job", "watch", posted, "--json")
    assert (plain.exit_code, as_json.exit_code) == (1, 1)
    assert "cancelled by its requester" in plain.stdout
    assert json.loads(as_json.stdout.splitlines()[-1])["state"] == "cancelled"


def test_the_list_has_the_job(run: Run, posted: str) -> None:
    assert posted in {job["id"] for job in json.loads(run("job", "list", "--json").stdout)}
    assert posted in run("job", "list").stdout
    run("job", "cancel", posted)
    assert posted not in {job["id"] for job in json.loads(run("job", "list", "--state", "draft", "--json").stdout)}


def test_parameters_are_downloaded_and_checked(run: Run, served: Service, posted: str, tmp_path: Path) -> None:
    with served.place.market() as market:
        for event in market.watch(posted):
            if event is not None and event.kind == "published":
                break
    path = tmp_path / "first.safetensors"
    done = run("job", "download", posted, "--output", str(path), "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["digest"] == f"blake3:{blake3(path.read_bytes()).hexdigest()}"
    assert run("job", "download", posted, "--round", "2", "--output", str(path)).exit_code == 2


def test_without_the_token_nothing_is_steered(run: Run, served: Service, posted: str, tmp_path: Path) -> None:
    done = run("job", "cancel", posted, "--market", served.place.url, "--data", str(tmp_path))
    assert done.exit_code == 2
    assert "401" in done.stderr


def test_an_unknown_job_and_an_absent_service_are_named_in_a_line(run: Run, tmp_path: Path) -> None:
    assert "no job 12345" in run("job", "show", "12345").stderr
    away = run("job", "list", "--market", "http://127.0.0.1:9")
    assert (away.exit_code, "does not answer" in away.stderr) == (2, True)
    none = run("job", "list", "--data", str(tmp_path))
    assert (none.exit_code, "gradmarket serve" in none.stderr) == (2, True)


def test_an_uploaded_document_is_taken_from_the_service(served: Service, tmp_path: Path) -> None:
    with RequesterClient(served.place.url, served.place.token) as there:
        document = there.upload(encoded(linear()))
        padding = there.upload(encoded(with_nodes(node("pad.default", [value(0), [1, 1], "reflect", None], 3))))
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
    spec["model"] = {"document": padding, "parameters": padding}
    takes = planned(tmp_path, spec | {"evaluation": None}, *there_too)["takes"]
    assert takes["card"] == ""
    assert takes["only_on_cpu"].startswith("pad.default: ")


def test_the_chain_is_shown(run: Run, served: Service) -> None:
    told = json.loads(run("chain", "show", "--json").stdout)
    assert told["contract"] == served.ledger().deployment.contract
    assert told["contract"] in run("chain", "show").stdout


def test_a_local_chain_comes_up_takes_a_contract_and_goes_down(run: Run, tmp_path: Path) -> None:
    here = ("--data", str(tmp_path), "--json")
    up = json.loads(run("chain", "up", *here).stdout)
    try:
        assert json.loads(run("chain", "up", *here).stdout)["pid"] == up["pid"]
        made = json.loads(run("chain", "deploy", "--rpc", up["url"], *here).stdout)
        assert json.loads((tmp_path / "deployment.json").read_text())["contract"] == made["contract"]
        assert run("chain", "deploy", "--rpc", up["url"], *here).exit_code == 2
    finally:
        assert json.loads(run("chain", "down", *here).stdout)["stopped"] == up["pid"]
    assert run("chain", "down", *here).exit_code == 2


def test_the_doctor_finds_a_sound_service_and_an_absent_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = run("doctor", "--json")
    assert {finding["name"]: finding["ok"] for finding in json.loads(sound.stdout)} == dict.fromkeys(
        (
            "python",
            "torch",
            "card",
            "anvil",
            "node",
            "data folder",
            "disk",
            "keys",
            "database",
            "service",
            "chain",
            "token",
            "auditor",
        ),
        True,
    )
    assert sound.exit_code == 0
    monkeypatch.setattr(doctor, "check_torch", partial(CheckResult, "torch", "as before"))
    unknown = run("doctor", "--token", "unknown", "--json")
    assert ([one["name"] for one in json.loads(unknown.stdout) if not one["ok"]], unknown.exit_code) == (["token"], 1)
    absent = run("doctor", "--market", "http://127.0.0.1:9")
    assert absent.exit_code == 1
    assert "gradmarket serve" in absent.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_help(command: str) -> None:
    told = CliRunner().invoke(app, [command, "--help"])
    assert told.exit_code == 0
    assert "--json" in told.stdout or "COMMAND" in told.stdout


def test_an_unknown_command_is_refused() -> None:
    assert CliRunner().invoke(app, ["jobs"]).exit_code == 2


def test_a_plan_takes_amounts_as_people_write_them(run: Run, file: Callable[..., str]) -> None:
    written, whole = (
        json.loads(run("job", "plan", file(), "--trust", "--json", "--stake", stake, "--saved", "1 GRAD").stdout)
        for stake in ("4 GRAD", "4" + "0" * 18)
    )
    assert written["assumed"]["stake"] == 2.0, "in prices"
    assert written["assumed"]["saved"] == 0.5
    assert whole == written
    refused = run("job", "plan", file(), "--trust", "--stake", "4 DARG")
    assert refused.exit_code == 2
    assert "is no amount" in refused.stderr


def test_data_upload_leaves_the_held_out_rows_unserved(run: Run, served: Service, tmp_path: Path) -> None:
    """Or the partitions that are named; the service measures on them, and serves them to nobody."""
    drawn = np.random.default_rng(7)
    np.savez(tmp_path / "rows.npz", x=drawn.standard_normal((30, 2)).astype(np.float32), y=drawn.integers(0, 2, 30))
    cut = ["--rows-per-partition", "12", "--held-out", "0.2", "-o", str(tmp_path / "packed")]
    assert run("data", "pack", str(tmp_path / "rows.npz"), *cut).exit_code == 0
    manifest = json.loads((tmp_path / "packed" / "manifest.json").read_text())
    digests = {part["name"]: part["digest"] for part in manifest["partitions"]}
    assert set(digests) == {"test", "train-0", "train-1"}

    def served_now() -> dict[str, int]:
        client = httpx.Client(base_url=served.place.url, headers={"Authorization": f"Bearer {served.place.token}"})
        return {name: client.head(f"/v1/blobs/{digest}").status_code for name, digest in digests.items()}

    done = run("data", "upload", str(tmp_path / "packed"), "--unserved", "train-1", "--unserved", "test")
    assert done.exit_code == 0, done.output
    assert served_now() == {"test": 404, "train-0": 200, "train-1": 404}
    assert run("data", "upload", str(tmp_path / "packed")).exit_code == 0
    assert served_now() == {"test": 404, "train-0": 200, "train-1": 200}
    assert run("data", "upload", str(tmp_path / "packed"), "--open").exit_code == 0
    assert served_now() == {"test": 200, "train-0": 200, "train-1": 200}
    assert run("data", "upload", str(tmp_path / "packed"), "--open", "--unserved", "test").exit_code == 2
    wrong = run("data", "upload", str(tmp_path / "packed"), "--unserved", "tset")
    assert wrong.exit_code == 2
    assert "has no partition tset: it has test, train-0, train-1" in wrong.output
