"""The command of graphdoc: its README's examples, and a sentence for each mistake."""

import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphdoc import tensors
from graphdoc.command import main
from tests.handmade import encoded, linear
from tests.lanes import leave_to_full

ROOT = Path(__file__).parents[2]
README = (ROOT / "graphdoc" / "README.md").read_text()
STATE = {"w": np.ones((1, 3), np.float32)}
BATCH = {"x": np.ones((2, 3), np.float32), "y": np.zeros((2, 1), np.float32)}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the linear document, its state and two rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("linear.json").write_bytes(encoded(linear()))
    Path("w.safetensors").write_bytes(tensors.pack_tensors(STATE))
    Path("rows.safetensors").write_bytes(tensors.pack_tensors(BATCH))
    return tmp_path


def test_the_readme_is_true(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model, interface = blocks("python")
    Path("net.py").write_text(model)
    Path("own.py").write_text(interface)
    (commands,) = blocks("sh")
    made, *given = commands.splitlines()
    assert made == "python net.py"
    runpy.run_path("net.py", run_name="__main__")
    for line in given:
        program = "python -m graphdoc "
        assert line.startswith(program)
        assert main(shlex.split(line.removeprefix(program))) == 0
    *said, last = capsys.readouterr().out.splitlines()
    told = json.loads(last)
    assert re.search(r"forward over 12 rows: .* operations, \d+ KiB\n", "\n".join(said)), "a small model's passes"
    assert re.search(r"the child then takes \d+ MiB, and \d+ MiB when idle", "\n".join(said))
    monkeypatch.syspath_prepend(folder)
    found = runpy.run_path("own.py")
    assert found["bound"].operations > 0
    assert found["metrics"].values == told["metrics"]
    assert told == {"rows": 12, "loss": found["metrics"].loss, "metrics": {"accuracy": pytest.approx(4 / 12, abs=0.34)}}
    assert set(found["answer"]) == {"loss", *dict(found["model"].named_parameters())}
    del sys.modules["net"]


def test_gradients_are_written_and_equal_what_is_computed_by_hand(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = "run linear.json --inputs rows.safetensors --parameters w.safetensors --out answer.safetensors --at-once 1"
    assert main(asked.split()) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 2, "loss": 9.0}
    answer = tensors.unpack_tensors((folder / "answer.safetensors").read_bytes())
    assert answer["loss"] == 9.0
    np.testing.assert_array_equal(answer["w"], np.full((1, 3), 6.0, np.float32))


WITHOUT_A_CHILD = {
    "check none.json --seconds 1000000": "none.json: No such file or directory",
    "run linear.json --inputs linear.json": "linear.json: the header is longer than the file or the limit",
    "export none.py:Net --data rows.safetensors --loss mse_loss --out net": "there is no file none.py",
    "check /dev/null": "/dev/null is empty: it has no document",
    "export Net --data rows.safetensors --loss mse_loss --out net": "Net names no module: write FILE.py:NAME",
    "export bad.py:Net --data rows.safetensors --loss mse_loss --out net": "bad.py does not import: ValueError: no",
    "export net.py:Nil --data rows.safetensors --loss mse_loss --out net": "net.py has no torch.nn.Module Nil",
    "export net.py:Net --data rows.safetensors --loss nil --out net": "there is no loss nil in net.py",
    "export net.py:Net --data w.safetensors --loss mse_loss --out net": "w.safetensors has w: it takes the target y",
    "export net.py:Two --data rows.safetensors --loss mse_loss --out net": "Two cannot be made without arguments",
}
IN_A_CHILD = {
    "check rows.safetensors": "The graph document was refused: not canonical JSON",
    "run linear.json --inputs rows.safetensors": "the document has a state (w): give it by --parameters",
    "run linear.json --inputs w.safetensors": "a batch has x, y, not w",
    "check linear.json --rows 100000000 --memory 256": "bytes at once",
    "run linear.json --inputs rows.safetensors --parameters rows.safetensors": "state: there is no w",
}


@pytest.mark.parametrize(("asked", "sentence"), [*WITHOUT_A_CHILD.items(), *leave_to_full(IN_A_CHILD.items())])
def test_each_mistake_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], asked: str, sentence: str
) -> None:
    two = "class Two(nn.Linear):\n    def __init__(self, width):\n        super().__init__(width, 1)\n"
    (folder / "net.py").write_text(f"from torch import nn\nNet = nn.Linear(3, 1)\n{two}")
    (folder / "bad.py").write_text("raise ValueError('no')")
    assert main(asked.split()) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("graphdoc: ")
    assert sentence in line


def test_no_control_character_of_a_stranger_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = b'{"a\\u001b[2J": 1}'
    (folder / "hostile.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (folder / "hostile.py").write_text("raise ValueError('\\x1b[2J \\u202e')")
    assert main(["run", "linear.json", "--inputs", "hostile.safetensors"]) == 1
    assert main(["export", "hostile.py:Net", "--data", "rows.safetensors", "--loss", "mse_loss", "--out", "net"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert "is not the name of an array" in first
    assert second == "graphdoc: hostile.py does not import: ValueError: ?[2J ?"
    assert "\x1b" not in first


def test_the_program_itself(folder: Path) -> None:
    asked = [sys.executable, "-m", "graphdoc", "check", "none.json"]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "graphdoc: none.json: No such file or directory\n")


@pytest.mark.parametrize(
    "asked",
    [
        "check linear.json --rows 0",
        "check linear.json --memory 1",
        "check linear.json --seconds 1000001",
        "run linear.json --inputs x --seed 12",
        "",
        "fly",
    ],
)
def test_unknown_arguments_end_with_the_usage(folder: Path, capsys: pytest.CaptureFixture[str], asked: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(asked.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: python -m graphdoc")
