"""A card's memory: workspaces are in the bound, idle children keep none of it, and none takes more than its share.

There is no card here: the requests and the children's loop are the real ones, and torch's calls are stand-ins.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from graphdoc.operators.cuda import MIB, workspace_bytes
from graphdoc.runner import frames
from graphdoc.runner.child import RequestHandler, limit_card_memory
from graphdoc.runner.children import JobChildren
from graphdoc.runner.serving import Configuration, Request, answer_next
from graphdoc.runner.settings import RunnerSettings
from tests.patience import PATIENCE_S

CARD = Configuration(0, False, 0, 0, 0, "cuda:1", 1, 40 * 2**30, 10**15, 40 * 2**30)
CHILD = """
from pathlib import Path
from graphdoc.runner import serving

given = []
def release(_request):
    given.append(1)
settings = serving.parse_configuration()
serving.IDLE_S = 3600.0
serving.serve_requests(settings, lambda: "stand-in", {"release": release, "given": lambda _request: len(given)})
"""


@pytest.mark.parametrize(
    ("told", "taken", "operators"),
    [
        (71, 104, ("conv2d.default", "batch_norm.default", "linear.default")),
        (50, 91, ("conv2d.default", "linear.default")),
        (13, 27, ("lstm.input", "linear.default")),
        (19, 50, ("gru.input", "linear.default")),
    ],
    ids=["cnn", "cnn without BatchNorm", "LSTM", "GRU"],
)
def test_the_memory_measured_on_an_h100_is_within_the_bound(told: int, taken: int, operators: tuple[str, ...]) -> None:
    """The bound in MiB before workspaces were counted, and the measured peak (torch.cuda.max_memory_allocated)."""
    assert 1.0 <= (told + workspace_bytes(operators) / MIB) / taken <= 1.3


def test_products_and_attention_need_no_more_than_their_tensors() -> None:
    assert workspace_bytes(("linear.default", "scaled_dot_product_attention.default", "lstm_cell.default")) == 0


def test_a_child_that_waits_gives_back_once_and_answers_as_before() -> None:
    (read, ask), (hear, reply) = os.pipe(), os.pipe()
    released, calls = threading.Event(), []

    def release(_request: Request) -> None:
        calls.append("release")
        released.set()

    answers = {"release": release, "double": lambda request: 2 * request["number"]}
    thread = threading.Thread(target=answer_next, args=(read, reply, answers, 0.0))
    thread.start()
    assert released.wait(PATIENCE_S)
    frames.send_frame(ask, {"do": "double", "number": 4})
    assert frames.receive_frame(hear) == {"ok": 8}
    thread.join(PATIENCE_S)
    frames.send_frame(ask, {"do": "double", "number": 5})
    answer_next(read, reply, answers, PATIENCE_S)
    assert frames.receive_frame(hear) == {"ok": 10}
    assert calls == ["release"], "who has work keeps its memory"
    for descriptor in (read, ask, hear, reply):
        os.close(descriptor)


def test_a_release_empties_torch_s_cache_of_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty"))
    RequestHandler(CARD).answers["release"]({})
    assert calls == ["empty"]


def test_a_child_has_its_share_of_the_card_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    card = type("Properties", (), {"total_memory": 80 * 2**30})
    monkeypatch.setattr(torch.cuda, "get_device_properties", {0: card, 1: card}.__getitem__)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *given: shares.append(given))
    limit_card_memory("cuda:1", 20 * 2**30)
    limit_card_memory("cuda", 200 * 2**30)
    assert shares == [(0.25, 1), (1.0, 0)]


@pytest.fixture
def children(tmp_path: Path) -> Iterator[tuple[JobChildren, tuple[str, ...]]]:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    with closing(JobChildren()) as made:
        yield made, (sys.executable, "-I", str(script))


def test_the_child_of_one_job_gives_the_card_to_the_next_one(
    children: tuple[JobChildren, tuple[str, ...]],
) -> None:
    made, command = children
    settings = RunnerSettings(device="cuda")
    given = {}
    for job in ("first", "second", "second", "first"):
        made.turn(job, command)
        child = made.running(settings).child
        given[job] = child.ask({"do": "given"})
    assert given == {"first": 1, "second": 0}
    made.turn("second", command)
    assert made.running(settings).child.ask({"do": "given"}) == 1
