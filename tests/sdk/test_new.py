"""`gradmarket new`: its scripts run at once, on bundled data and on one's own."""

import json
import os
import re
import resource
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.commands.new import list_starter_kinds
from gradmarket.demo.service import Service
from gradmarket.market.features.private.row_budget import build_row_spending
from gradmarket.sdk import planning
from gradmarket.terminal import INTERRUPTED
from gradmarket.user_files import write_all
from tests.lanes import FULL
from tests.patience import PATIENCE_S

NOWHERE = "fix: make it first, or name another place\n"


@pytest.fixture(autouse=True)
def here(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_DATA", str(served.data))


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """A new folder of this kind, for one worker; the rounds are few."""

    def write(kind: str, rounds: int = 3) -> Path:
        folder = tmp_path / kind
        chosen = ["--private"] if kind == "private" else ["--for", kind, "--alone"]
        done = CliRunner().invoke(app, ["new", str(folder), *chosen])
        assert done.exit_code == 0, done.output
        assert f"python {folder / 'train.py'}" in done.stdout
        assert done.stdout.count("worker run") == (kind != "private")
        job = json.loads((folder / "settings.json").read_text())
        (folder / "settings.json").write_text(json.dumps(job | {"rounds": rounds}))
        return folder

    return write


def trained(folder: Path, *arguments: str) -> None:
    """Runs the script as its user does."""
    command = [sys.executable, str(folder / "train.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    assert "finished: all rounds are done" in done.stdout
    assert load_file(folder / "model.safetensors")


@pytest.mark.parametrize("kind", [pytest.param("images", marks=FULL), "table", pytest.param("text", marks=FULL)])
def test_a_starter_trains_at_once_on_bundled_data(
    kind: str, written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(kind)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    runpy.run_path(str(folder / "train.py"), run_name="__main__")
    assert "held-out" in capsys.readouterr().out.splitlines()[-1]
    assert load_file(folder / "model.safetensors")


def test_there_is_no_other_kind() -> None:
    assert list_starter_kinds() == ["images", "table", "text"]


@FULL
def test_a_starter_trains_on_own_images(written: Callable[..., Path], tmp_path: Path) -> None:
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    np.savez(tmp_path / "mine.npz", x=np.repeat(digits.images[:200, None], 3, axis=1) / 16, y=digits.target[:200])
    trained(written("images", 2), str(tmp_path / "mine.npz"))


@FULL
def test_a_starter_trains_on_an_own_table(written: Callable[..., Path], tmp_path: Path) -> None:
    rows = "".join(f"{n},{n * n},{'even' if n % 2 == 0 else 'odd'}\n" for n in range(200))
    (tmp_path / "mine.csv").write_text("a,b,parity\n" + rows)
    trained(written("table", 2), str(tmp_path / "mine.csv"), "parity")


@FULL
def test_a_starter_trains_on_own_text(written: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("the quick brown fox jumps over the lazy dog; " * 200)
    trained(written("text", 2), str(tmp_path / "mine.txt"))


@FULL
@pytest.mark.parametrize(
    ("kind", "arguments", "said", "remedy"),
    [
        ("table", ["mine.csv", "c"], "has no column c: name the classes' column of a, b", ""),
        ("table", ["none.csv", "c"], "none.csv", NOWHERE),
        ("text", ["none.txt"], "none.txt", NOWHERE),
        ("text", [], "no service", "fix: start one with `gradmarket serve`"),
        ("private", [], "no service", "fix: start one with `gradmarket serve`"),
    ],
)
def test_a_starter_script_s_mistake_is_printed_with_its_remedy(
    kind: str, arguments: list[str], said: str, remedy: str, written: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    environment = os.environ | {"GRADMARKET_DATA": str(tmp_path)}
    command = [sys.executable, str(written(kind) / "train.py"), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == (2 if remedy else 1)
    first, _, rest = done.stderr.partition("\n")
    assert first.startswith("error: ")
    assert said in first
    assert rest.startswith(remedy)
    assert rest.count("\n") == bool(remedy)


@pytest.mark.parametrize(
    ("kind", "settings", "arguments", "message"),
    [
        ("table", "{", [], "settings.json is not JSON"),
        ("images", "[]", [], "settings.json is not a JSON object"),
        ("text", '{"price": "1 GRAD"}', [], "settings.json has no rounds"),
        ("table", "{}", [], "settings.json has no rounds and no price"),
        ("table", "{}", ["mine.csv", "c"], "row 1 of mine.csv has no c: write its class"),
        ("images", "{}", ["mine.npz"], "mine.npz has x[2, 1, 8, 8] and y[2] up to 1000000000: give"),
    ],
)
def test_a_starter_s_damaged_input_ends_it_in_a_sentence(
    kind: str,
    settings: str,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["new", "first", "--for", kind]).exit_code == 0
    Path("first/settings.json").write_text(settings)
    Path("mine.csv").write_text("a,c\n1,1\n2,\n3,2\n")
    np.savez("mine.npz", x=np.zeros((2, 1, 8, 8)), y=np.array([0, 10**9]))
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path("first/train.py", run_name="__main__")
    assert message in f"{ended.value} {capsys.readouterr().err}"


@FULL
@pytest.mark.parametrize("kind", ["table", "private"])
def test_an_interrupted_script_prints_that_the_job_goes_on(kind: str, written: Callable[..., Path]) -> None:
    """Its market takes the connection and stays silent; the interrupt comes then."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        market = {"GRADMARKET_URL": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        command = [sys.executable, str(written(kind) / "train.py")]
        heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # in the background they are ignored
        script = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | market, preexec_fn=heeds)
        connection, _ = silent.accept()
        script.send_signal(signal.SIGINT)
        _, said = script.communicate(timeout=PATIENCE_S)
        connection.close()
    assert script.returncode == INTERRUPTED
    assert said == "stopped: a job that was posted goes on, and `gradmarket job list` shows it\n"


@FULL
@pytest.mark.parametrize(("kind", "takes"), [("table", "[TABLE.csv COLUMN]"), ("private", "[ADDRESS …]")])
def test_a_script_s_help_has_its_arguments(kind: str, takes: str, written: Callable[..., Path]) -> None:
    done = subprocess.run([sys.executable, str(written(kind) / "train.py"), "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python train.py {takes}" in done.stdout


def test_a_private_script_is_not_written_as_a_public_one(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["new", str(tmp_path / "mine"), "--private", "--for", "images"])
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "leave out --for, or --private" in done.stderr


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("images", b"", "is no npz file with x and y"),
        ("images", b"a,b\n1,2\n", "is no npz file with x and y"),
        ("images", b"PK\x03\x04 cut off", "is no npz file with x and y"),
        ("images", {"x": np.zeros((4, 1, 8, 8))}, "is no npz file with x and y"),
        ("images", {"x": np.zeros((4, 8)), "y": np.zeros(4)}, "has x[4, 8] and y[4]"),
        ("images", {"x": np.zeros((5, 1, 8, 8)), "y": np.zeros(4)}, "has x[5, 1, 8, 8] and y[4]"),
        ("images", {"x": np.zeros((0, 1, 8, 8)), "y": np.zeros(0)}, "has x[0, 1, 8, 8] and y[0]"),
        ("images", {"x": np.zeros((2, 1, 8, 8)), "y": np.array([-1, 0])}, "give x[rows, channels, height, width]"),
        ("table", b"", "is no table"),
        ("table", b"a,c\n1\n", "is no table"),
        ("table", b"a,b\n1,2\n", "has no column c: name the classes' column of a, b"),
        ("table", b"a,c\nred,x\n", "column a does not hold numbers"),
        ("table", b"c\nx\n", "no column of numbers beside c"),
        ("table", b"a,c\n", "has no rows"),
        ("text", b"", "0 characters are too few"),
        ("text", b"\xff\xfe\x00", "not all of it is text in UTF-8"),
    ],
)
def test_a_malformed_file_is_refused_in_one_sentence(
    kind: str, content: bytes | dict[str, np.ndarray], said: str, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    if isinstance(content, bytes):
        mine.write_bytes(content)
    else:
        with mine.open("wb") as file:
            np.savez(file, **content)
    main = runpy.run_module(f"gradmarket.starters.{kind}")["main"]
    with pytest.raises(SystemExit, match=re.escape(said)) as told:
        main(*{"images": (str(mine),), "table": (str(mine), "c"), "text": ([str(mine)],)}[kind])
    assert str(told.value).startswith("error: ")
    assert "\n" not in str(told.value)


def test_the_printed_next_command_quotes_a_blank(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["new", str(tmp_path / "my first"), "--for", "text"])
    assert f"python '{tmp_path / 'my first' / 'train.py'}'" in done.stdout


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for place in (tmp_path, tmp_path / "mine"):
        done = CliRunner().invoke(app, ["new", str(place), "--for", "text"])
        assert done.exit_code == 2
        assert "is not an empty folder" in done.stderr
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_script_is_read_without_a_market() -> None:
    for kind in list_starter_kinds():
        assert callable(runpy.run_module(f"gradmarket.starters.{kind}")["main"])


@FULL
def test_a_private_starter_makes_example_holders_and_their_rows(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    assert CliRunner().invoke(app, ["new", str(folder), "--private"]).exit_code == 0
    script = runpy.run_path(str(folder / "train.py"))
    addresses = script["make_example_holders"]()
    assert len(set(addresses)) == 3
    assert all((folder / f"holder-{number}" / "rows" / "manifest.json").is_file() for number in (1, 2, 3))
    x, y = script["own_rows"]()
    assert len(x) == len(y) == 360
    both = CliRunner().invoke(app, ["new", str(tmp_path / "other"), "--private", "--for", "pictures"])
    assert both.exit_code != 0


@pytest.mark.parametrize("options", [("--secure",), ("--per-row",), ("--secure", "--per-row")])
def test_a_private_one_may_hide_answers_and_rows(options: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "private"
    assert CliRunner().invoke(app, ["new", str(folder), "--private", *options]).exit_code == 0
    job = json.loads((folder / "settings.json").read_text())
    holders = {"holders": [f"0x{number:040x}" for number in range(1, 4)], **job.pop("private")}
    spec = planning._check_fields(job | {"price": "1"}, holders, measures=False)
    assert (spec.secure is not None) == ("--secure" in options)
    assert spec.step.by_row == ("--per-row" in options)
    if (rows := build_row_spending(spec)) is not None:
        assert rows.rounds >= spec.rounds


@pytest.mark.parametrize("options", [("--secure",), ("--per-row", "--for", "table")])
def test_options_of_holders_need_private(options: tuple[str, ...], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["new", str(tmp_path / "new"), *options])
    assert done.exit_code == 2
    assert "add --private" in done.stderr


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    folder, limits = tmp_path / "first", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as a full disk
    try:
        with pytest.raises(OSError, match="too large"):
            write_all({tmp_path / "fits": "b", tmp_path / "does not": "d" * 101})
        done = CliRunner().invoke(app, ["new", str(folder), "--for", "table"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.exit_code != 0
    assert [*tmp_path.iterdir(), *folder.iterdir()] == [folder]
