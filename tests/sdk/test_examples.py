"""The examples as they lie in their folder, for a few rounds each."""

import json
import re
import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from gradmarket import Market
from gradmarket.demo.service import Service
from tests.lanes import FULL
from tests.town import ALONE

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def here(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_DATA", str(served.data))
    monkeypatch.syspath_prepend(EXAMPLES)


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@FULL
def test_a_character_model_by_local_steps_in_bf16_and_its_curve(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, market: Market
) -> None:
    job = market.job(example("character")["main"](3, steps=5, replication=ALONE, seed=0).id)
    found, guess = (float(part.split()[-1]) for part in capsys.readouterr().out.splitlines()[-1].split(","))
    assert found < guess - 0.3
    job.plot().save(tmp_path / "curve.svg")
    lines = ElementTree.parse(tmp_path / "curve.svg").getroot().findall("{*}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [3, 3]


@FULL
def test_digits_by_an_mlp(tmp_path: Path, market: Market) -> None:
    spec = json.loads((EXAMPLES / "digits_mlp.json").read_text())
    (tmp_path / "job.json").write_text(json.dumps(spec | {"rounds": 3, "replication": ALONE, "seed": 0}))
    job = example("pictures")["posted"](str(tmp_path / "job.json"))
    assert market.job(job.id).metrics["accuracy"] > 0.3


@FULL
def test_the_notebook_s_cells_run_in_their_order(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As a kernel runs them, without one: their lines are Python's alone."""
    notebook = json.loads((EXAMPLES / "first_job.ipynb").read_text())
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")
    (tmp_path / "cells.py").write_text("\n\n".join(code))
    names = runpy.run_path(str(tmp_path / "cells.py"))
    assert names["after"] < names["before"]
    assert "prices" in capsys.readouterr().out
    model, loss, market, rows = (names[name] for name in ("model", "loss", "market", "x"))
    plan = Market.plan(model, loss, (rows, names["y"]), market=market, **names["asked"])
    assert "would take it, by what they took" in plan.prices, "the worker took just this price"
    assert names["job"].plot()._repr_svg_().startswith("<svg")
    assert names["job"].state == "finished"


def test_the_page_shows_the_picture_of_every_example() -> None:
    pictures = example("pictures")["PICTURES"]
    shown = re.findall(r"\(pictures/(\w+)\.svg\)", (EXAMPLES / "README.md").read_text())
    assert sorted(shown) == sorted(pictures) == sorted(path.stem for path in (EXAMPLES / "pictures").iterdir())
    for name, (title, _) in pictures.items():
        root = ElementTree.parse(EXAMPLES / "pictures" / f"{name}.svg").getroot()
        assert title in [text.text for text in root.findall("{*}text")]
        assert len(root.findall("{*}polyline")) == 2


@FULL
def test_a_frozen_hugging_face_model_learns_by_its_low_rank_additions_alone(
    capsys: pytest.CaptureFixture[str], market: Market
) -> None:
    lora = example("lora")
    job = market.job(lora["main"](3, depth=1, steps=60, replication=ALONE, seed=0).id)
    found, before = (float(part.split()[-1]) for part in capsys.readouterr().out.splitlines()[-1].split(","))
    assert found < before - 0.5
    early, late = lora["Language"](1), lora["Language"](1)
    for model, number in ((early, 0), (late, 2)):
        model.add_low_rank()
        job.load_into(model, after_round=number)
    changed = {name for name, value in late.state_dict().items() if not torch.equal(value, early.state_dict()[name])}
    assert changed == {name for name, parameter in late.named_parameters() if parameter.requires_grad}


@FULL
@pytest.mark.parametrize(("name", "rounds"), [("lightning_module", 10), ("hugging_face_trainer", 12)])
def test_another_librarys_model_is_trained_here_and_tested_by_its_own_trainer(
    name: str, rounds: int, capsys: pytest.CaptureFixture[str], market: Market
) -> None:
    job = market.job(example(name)["main"](rounds, seed=0, replication=ALONE).id)
    assert job.state == "finished"
    told = capsys.readouterr().out.splitlines()[-1]
    assert float(told.split("accuracy ")[1]) > 0.7, "a guess is at a tenth and a half"


@FULL
def test_twenty_lines_train_a_frame_with_two_columns_of_words_and_report_auc(
    market: Market, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = [line for line in (EXAMPLES / "customers.py").read_text().splitlines() if line.strip()]
    assert len(written) <= 20
    train = Market.train
    monkeypatch.setattr(Market, "train", lambda *given, **named: train(*given, **named, replication=ALONE, seed=0))
    torch.manual_seed(0)
    ran = example("customers")
    job, frame, model = (ran[name] for name in ("job", "frame", "model"))
    later = job.encode(frame[1500:])
    with torch.no_grad():
        scores = model(torch.tensor(later["x"])).softmax(1)[:, 1]
    expected = pytest.importorskip("sklearn.metrics").roc_auc_score(later["y"], scores)
    assert job.history[-1]["auc"] == pytest.approx(expected, abs=1e-6), "of all 500 rows, by scikit-learn"
    assert expected > 0.8
    assert job.view().reason.startswith("auc reached 0.8")
    assert f"'auc': {job.metrics['auc']}" in capsys.readouterr().out
    assert {"round", "training loss", "loss", "accuracy", "auc", "f1"} == set(job.history[-1])
    assert [one["round"] for one in job.history] == list(range(len(job.history)))
