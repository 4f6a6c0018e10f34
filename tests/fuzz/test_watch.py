"""The watch reports a reader's forbidden act by the case's seed."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from fuzz.child import WARMING, Outcome
from fuzz.playing import ROOT, Batch, player
from fuzz.showing import shown
from tests.lanes import FULL

READER: Final = """
import builtins, os, pickle, socket, subprocess
from fuzz.case import Case
REFUSED = ValueError
held, reads = [], 0

def case(chance):
    return Case(b"")

def read(case):
    global reads
    reads += 1
    if reads == {fatal}:
        {fault}
    if reads % 2:
        raise REFUSED
"""
FATAL: Final = 5
COUNT: Final = 10
FAULTS: Final = {
    "another error": ("{}['missing']", "KeyError: 'missing'"),
    "an open file": ("open(os.devnull).close()", "it did open("),
    "a folder": ("os.listdir('/')", "it did os.listdir("),
    "code": ("builtins.eval('1 + 1')", "it did compile("),
    "an import": ("import colorsys", "it did import("),
    "a pickle": ("pickle.loads(pickle.dumps(os.getcwd))", "it did pickle.find_class("),
    "a socket": ("socket.socket().close()", "it did socket.__new__("),
    "a program": ("subprocess.run(['true'])", "it did subprocess.Popen("),
    "memory": ("len(bytearray(b'x') * (400 * 2**20))", "MiB"),
    "a descriptor": ("held.append(os.dup(0))", "a descriptor stayed open"),
    "time": ("end = os.times().user + 1.3\n        while os.times().user < end: pass", "it took "),
    "a crash": ("os.abort()", "SIGABRT"),
}


@FULL
@pytest.mark.parametrize("name", FAULTS)
def test_a_reader_s_forbidden_act_is_reported_with_its_seed(tmp_path: Path, name: str) -> None:
    fault, told = FAULTS[name]
    folder = tmp_path / "strange_kinds"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "reader.py").write_text(READER.format(fatal=WARMING + FATAL, fault=fault))
    with player("strange_kinds", str(tmp_path)) as playing:
        outcome = playing.play(Batch("reader", 0, COUNT))
    assert outcome.cases == COUNT, "the cases after it are played too"
    seed = "reader/0" if name == "a descriptor" else f"reader/{FATAL - 1}"
    assert outcome.failures
    assert outcome.failures[0][0] == seed
    assert told in "".join(fault for _, fault in outcome.failures)


def test_a_reader_that_does_not_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "strange_kinds"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "reader.py").write_text(READER.format(fatal=0, fault="pass"))
    with player("strange_kinds", str(tmp_path)) as playing:
        outcome = playing.play(Batch("reader", 0, COUNT))
    assert (outcome.cases, outcome.accepted, outcome.refused, outcome.failures) == (COUNT, COUNT // 2, COUNT // 2, [])


def fuzz(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "fuzz", *arguments], cwd=ROOT, capture_output=True, text=True)


@FULL
def test_a_case_is_played_again_by_its_seed_and_another_word_is_none() -> None:
    again = fuzz("--seed", "jsonl/3")
    assert again.returncode == 0
    assert "jsonl" in again.stdout
    for word in ("jsonl", "jsonl/x", "os/3", "../jsonl/3"):
        assert fuzz("--seed", word).returncode == 2


def test_a_failure_is_printed_with_its_seed_and_ends_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown({"npz": Outcome(cases=2, accepted=1, failures=[("npz/1", "KeyError: 'x'")])}) == 1
    assert "make fuzz SEED=npz/1\nKeyError: 'x'" in capsys.readouterr().out
    assert shown({"npz": Outcome(cases=2, accepted=1, refused=1)}) == 0
