"""A card's memory: workspaces are in the bound, idle children keep none of it, and none takes more than its share.

There is no card here: the requests and the children's loop are the real ones, and torch's calls are stand-ins.
"""

import fcntl
import functools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from graphdoc.cost import Cost
from graphdoc.document.interpret import Program
from graphdoc.document.publish import compute_classification_loss, publish_module
from graphdoc.document.schema import parse_document
from graphdoc.figures import Published
from graphdoc.operators.cuda import MIB, workspace_bytes
from graphdoc.runner import frames
from graphdoc.runner.arena import Arena
from graphdoc.runner.card_slots import CardSlots, open_slots
from graphdoc.runner.child import RequestHandler, limit_card_memory
from graphdoc.runner.children import JobChildren
from graphdoc.runner.process import ChildProcess
from graphdoc.runner.serving import Configuration, Request, answer_next
from graphdoc.runner.settings import RunnerSettings
from tests.patience import PATIENCE_S, wait_for_end, wait_until

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
HOLDER = """
import time
from graphdoc.runner import serving
from graphdoc.runner.card_slots import CardSlots

settings = serving.parse_configuration()
slots = CardSlots(settings.slots, 80 * 2**30)
def wait(_request):
    while not slots.is_awaited():
        pass
    return True
answers = {"take": lambda _request: slots.take(80 * 2**30), "await": wait}
serving.serve_requests(settings, lambda: "stand-in", answers)
"""
WAITER = """
import torch
from graphdoc.runner import serving
from graphdoc.runner.child import RequestHandler

torch.cuda.empty_cache = lambda: None
settings = serving.parse_configuration()
handler = RequestHandler(settings)
def step(_request):
    handler._take_slots(80 * 2**30, 2**30)
    return "done"
serving.serve_requests(settings, lambda: "stand-in", {"step": step})
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
def twins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[RequestHandler, RequestHandler, list[str]]]:
    """Two processes' handlers on one card of 80 GiB, each with 40 for a step, and the calls of torch."""
    calls: list[str] = []
    card = type("Properties", (), {"total_memory": 80 * 2**30})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _number: card)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *_given: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty"))
    unread = os.open(os.devnull, os.O_WRONLY)
    slots = [open_slots(str(tmp_path / "slots")) for _ in range(2)]
    one, other = (RequestHandler(replace(CARD, answers=unread, slots=each)) for each in slots)
    yield one, other, calls
    os.close(unread)


def take_step(handler: RequestHandler, gib: int) -> None:
    program = Program(parse_document(publish_linear().document))
    with handler.allowed(program, Cost(1, gib * 2**30, 0, 0, ""), 1):
        pass


@functools.cache
def publish_linear() -> Published:
    return publish_module(nn.Linear(2, 2), compute_classification_loss, (torch.ones(2, 2), torch.arange(2)))


def test_small_steps_of_two_workers_share_a_card_and_keep_their_memory(
    twins: tuple[RequestHandler, RequestHandler, list[str]],
) -> None:
    one, other, calls = twins
    for _ in range(3):
        take_step(one, 10)
        take_step(other, 10)
    assert calls == ["empty", "empty"], "each before its first step"


def test_large_steps_of_two_workers_take_turns_and_leave_nothing(
    twins: tuple[RequestHandler, RequestHandler, list[str]],
) -> None:
    one, other, calls = twins
    take_step(one, 39)
    waits = threading.Thread(target=take_step, args=(other, 39))
    waits.start()
    wait_until(lambda: awaited(one))
    assert calls == ["empty", "empty"]
    again = threading.Thread(target=take_step, args=(one, 39))
    again.start()
    wait_for_end(waits)
    assert calls == ["empty"] * 3, "before its next step it freed its memory, as another waited"
    other.answers["release"]({})
    wait_for_end(again)


def test_a_look_at_the_gate_is_no_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that only look must not free their memory for each other."""
    one, other = (
        CardSlots(descriptor, 2**30) for descriptor in map(open_slots, [str(tmp_path / "slots")] * 2) if descriptor
    )
    ask, seen = fcntl.fcntl, []

    def look_while_the_other_looks(descriptor: int, command: int, argument: bytes) -> object:
        answer = ask(descriptor, command, argument)
        if not seen:
            seen.append(None)
            seen[0] = one.is_awaited()
        return answer

    monkeypatch.setattr(fcntl, "fcntl", look_while_the_other_looks)
    assert other.is_awaited() is False
    assert seen == [False]


def awaited(handler: RequestHandler) -> bool:
    slots = handler._slots
    return slots is not None and slots.is_awaited()


def test_the_slots_of_a_killed_child_are_free(tmp_path: Path) -> None:
    script, path = tmp_path / "child.py", str(tmp_path / "slots")
    script.write_text(HOLDER)
    settings = RunnerSettings(device="cuda", slots=path)
    arena = Arena.create()
    child = ChildProcess(settings, arena, (sys.executable, "-I", str(script)))
    child.ask({"do": "take"})
    descriptor = open_slots(path)
    assert descriptor is not None
    mine = CardSlots(descriptor, 80 * 2**30)
    waits = threading.Thread(target=mine.take, args=(2**30,))
    waits.start()
    assert child.ask({"do": "await"}) is True
    child.end()
    wait_for_end(waits)
    assert mine.holds(2**30)
    arena.close()
    os.close(descriptor)


@pytest.mark.parametrize("path", ["", "missing/slots", "."])
def test_a_file_that_cannot_be_opened_leaves_the_card_to_each(path: str, tmp_path: Path) -> None:
    assert open_slots(path and str(tmp_path / path)) is None


def test_users_of_one_machine_open_the_same_slots(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        descriptor = open_slots(str(tmp_path / "slots"))
    finally:
        os.umask(before)
    assert descriptor is not None
    assert os.fstat(descriptor).st_mode & 0o777 == 0o666
    os.close(descriptor)


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


def test_a_child_that_waits_for_another_s_slots_reports_it_once_and_answers(tmp_path: Path) -> None:
    script, path = tmp_path / "child.py", str(tmp_path / "slots")
    script.write_text(WAITER)
    descriptor = open_slots(path)
    assert descriptor is not None
    mine, told = CardSlots(descriptor, 80 * 2**30), []
    mine.take(80 * 2**30)
    settings = RunnerSettings(device="cuda", slots=path)
    with closing(Arena.create()) as arena:
        child = ChildProcess(settings, arena, (sys.executable, "-I", str(script)))

        def give_back() -> None:
            told.append("waits")
            mine.give_back()

        assert child.ask({"do": "step"}, on_wait=give_back) == "done"
        assert child.ask({"do": "step"}, on_wait=give_back) == "done"
        child.end()
    assert told == ["waits"]
    os.close(descriptor)
