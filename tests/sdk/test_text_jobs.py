"""The ready gpt trains on text from a job file, and its perplexity is measured over all held-out tokens."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gradmarket import Market, Text, TrainingJob
from gradmarket.cli import app
from gradmarket.demo.service import Service
from gradmarket.market.errors import Refused
from tests.lanes import FULL
from tests.town import ALONE

WRITTEN = "the cat sat on the mat and the dog sat on the log. " * 60


class Words:
    def encode(self, text: str) -> list[int]:
        return [len(word) % 9 for word in text.split()]

    def __len__(self) -> int:
        return 9


@FULL
def test_a_job_file_trains_the_ready_gpt_on_text(market: Market, served: Service, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(WRITTEN)
    service = ["--market", served.place.url, "--token", str(served.place.token)]

    def run_command(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words])
        assert done.exit_code == 0, done.output
        return done.stdout.strip()

    packed = str(tmp_path / "packed")
    options = ["--rows-per-partition", "200", "--length", "16", "--held-out", "0.2", "-o", packed]
    run_command("data", "pack", str(tmp_path / "book.txt"), *options)
    job = {
        "name": "book",
        "model": {"architecture": "gpt", "arguments": {"depth": 1, "width": 16, "heads": 2}},
        "data": {"manifest": run_command("data", "upload", packed, *service)},
        "evaluation": {"partition": "test", "metrics": ["perplexity", "top3"]},
        "stop": ["perplexity < 80", "loss stalls 5"],
        "step": {"rows": 64},
        "optimizer": {"name": "adamw", "lr": 0.05},
        "replication": ALONE,
        "rounds": 20,
        "price": "0.01 GRAD",
        "seed": 0,
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    made: TrainingJob = market.job(run_command("job", "submit", str(tmp_path / "job.json"), "--yes", *service))
    made.watch()
    history = made.history
    for one in history:
        assert one["perplexity"] == pytest.approx(math.exp(one["loss"]), rel=1e-4), "all windows have as many tokens"
    assert history[-1]["perplexity"] < 80 < history[0]["perplexity"]
    assert made.reason == f"perplexity reached {history[-1]['perplexity']:.6g}"
    assert len(history) < 20
    assert made.view().best_round == min(history, key=lambda one: one["loss"])["round"], (
        "without an accuracy: by the loss"
    )
    assert made.encode("the cat")["x"].tolist() == [list(b"the cat")]
    later = made.encode(Text("the cat sat", 5))
    assert (later["x"].tolist(), later["y"].tolist()) == (
        [list(b"the c"), list(b"at sa")],
        [list(b"he ca"), list(b"t sat")],
    )
    with pytest.raises(Refused, match="was trained with the tokenizer bytes of 256 tokens"):
        made.encode(Text("the cat", 2, Words()))
    with pytest.raises(Refused, match="trains on text: encode takes a str"):
        made.encode({"x": [1]})
