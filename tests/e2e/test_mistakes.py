"""Every command with every kind of wrong argument: two sentences, exit code 2, and no traceback."""

import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from typer.main import get_command
from typer.testing import CliRunner, Result

from gradmarket import mistakes
from gradmarket.cli import app
from gradmarket.client.client_errors import ServiceProblem
from gradmarket.demo.children import STOPS
from gradmarket.demo.command import interrupt_demo
from gradmarket.terminal import INTERRUPTED
from tests.lanes import FULL
from tests.source_tree import PACKAGES
from worker import wallet

DEAD: Final = "http://127.0.0.1:1"
"""Where nothing listens."""
ANSWERS: Final = (0, 1, mistakes.CODE)
"""Done, the command's own no, a mistake."""
SOUND: Final[dict[str, str | None]] = {
    "--market": DEAD,
    "--rpc": DEAD,
    "--data": "folder",
    "--wait-s": "0",
    "--tasks": "5",
    "--workers": "5",
    "--passphrase-file": "passphrase",
    "--token": "none",
    "--port": "0",
    "--role": "read",
    "--output": "out",
    "--from": "folder",
    "--to": "new",
    "--rows-per-partition": "5",
    "--guilty": None,
    "--cache": "junk/below",
}
"""Values of the other options, so that no command finds a service, a chain or much to do."""
WORDS: Final = ("", "nobody", "-1", "1e400", "http://[", "\udcff")
JUNK: Final = tuple(f"junk{suffix}" for suffix in ("", ".npz", ".npy", ".parquet", ".csv", ".jsonl", ".safetensors"))
SHARE: Final = 12
"""`make test` tries every twelfth wrong word of a parameter of every third command, `make test-all` all of them."""
TEXTS: Final = {"array.json": "[1]", "deep.json": "[" * 100_000, "empty.json": ""}
PLACES: Final = ("/proc/nope", "junk/below", "x" * 300, "\udcff/nope", *JUNK, *TEXTS)
"""Neither a folder that can be used or made, nor a file with anything in it that makes sense."""


def leaves(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in sorted(group.commands.items()):
        loaded = command if path else group.resolve_command(typer.Context(group), [name])[1]
        if getattr(loaded, "commands", None):
            yield from leaves(loaded, *path, name)
        else:
            yield (*path, name), loaded


TREE: Final = {path: command for path, command in leaves(get_command(app)) if path[:2] != ("worker", "wallet")}
"""Every command once: `worker wallet` has those of `wallet`."""


def required(command: Any, but: Any = None) -> list[str]:
    """Returns sound arguments for the required options, and for those that keep the command from real effects."""
    words: list[str] = []
    options = {option for parameter in command.params for option in parameter.opts}
    asks = {"--market", "--passphrase-file"} <= options  # a market that is silent is asked for seconds: no wallet here
    for parameter in command.params:
        if parameter is but:
            continue
        if parameter.param_type_name == "argument":
            words += ["nobody"] if parameter.required else []
        elif (name := parameter.opts[0]) in SOUND:
            value = "nothing" if asks and name == "--data" else SOUND[name]
            words += [name] if value is None else [name, value]
    return words


def wrong(parameter: Any) -> tuple[str, ...]:
    return PLACES if holds_a_path(parameter) else WORDS


def holds_a_path(parameter: Any) -> bool:
    return "FILE" in (parameter.metavar or "") or parameter.type_descriptor.annotation in (Path, Path | None)


def tries(command: Any, share: int = 1) -> Iterator[list[str]]:
    """Of the wrong words for each parameter, every `share`-th: those of the next parameter begin with the next word."""
    yield [*required(command), "--no-such-option"]
    yield [*required(command), "too", "many", "words"]
    for number, parameter in enumerate(command.params):
        if parameter.name in ("help", "as_json") or getattr(parameter, "is_flag", False):
            continue
        for word in wrong(parameter)[number % share :: share]:
            given = [word] if parameter.param_type_name == "argument" else [parameter.opts[0], word]
            yield [*required(command, parameter), *given]
        if parameter.param_type_name == "option":
            yield [*required(command, parameter), parameter.opts[0]]


WAITING = (
    "gradmarket.public_audit.audit_run",
    "worker.features.consents",
    "worker.features.disputes.dispute_commands",
    "worker.features.machine_check",
    "worker.features.stakes.examine",
    "worker.features.stakes.stake",
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that can be named wrongly, on a machine where no child process starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for module in WAITING:  # for a market that comes back: none here does
        monkeypatch.setattr(import_module(module), "COMMAND_WAIT_S", 0.0)
    for name in [name for name in os.environ if name.startswith("GRADMARKET_")]:
        monkeypatch.delenv(name)
    wallet.create_wallet(tmp_path / "folder", None)
    for name in JUNK:
        (tmp_path / name).write_bytes(b"\x93\xff\x00 junk \n" * 20)
    for name, text in {"passphrase": "secret\n", **TEXTS}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def call(words: list[str]) -> Result:
    return CliRunner().invoke(app, words)


@pytest.mark.parametrize("path", [*TREE][::3], ids=" ".join)
def test_no_wrong_argument_ends_in_a_traceback(path: tuple[str, ...], place: Path) -> None:
    check_wrong_words(path, SHARE)


@FULL
@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_none_of_all_wrong_arguments_ends_in_a_traceback(path: tuple[str, ...], place: Path) -> None:
    check_wrong_words(path, 1)


def check_wrong_words(path: tuple[str, ...], share: int) -> None:
    for words in tries(TREE[path], share):
        done = call([*path, *words])
        said = (path, words, done.output[-800:])
        assert done.exception is None or isinstance(done.exception, SystemExit), said
        assert not [word for word in ("Traceback", "pydantic") if word in done.output], said
        assert done.exit_code in ANSWERS, said
        if done.exit_code == mistakes.CODE:
            assert "error: " in done.stderr, said
            assert "fix: " in done.stderr, said


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_that_is_no_manifest_is_refused_with_its_fault_in_words(name: str, place: Path) -> None:
    (place / "folder" / "manifest.json").write_text(TEXTS[name])
    done = call(["data", "upload", "folder", "--market", DEAD])
    assert (done.exit_code, "is not a manifest: manifest" in done.stderr) == (mistakes.CODE, True)
    assert "pydantic" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["archive", DEAD, "job-1", ""],
        ["backup", "--to", ""],
        ["data", "pack", "", "-o", "out"],
        ["data", "pack", "junk.npy", "-o", ""],
        ["data", "upload", ""],
        ["job", "plan", ""],
        ["job", "submit", ""],
        ["new", ""],
        ["wallet", "backup", ""],
        ["wallet", "export-watch", ""],
        ["wallet", "heads", "export", ""],
    ],
    ids=" ".join,
)
def test_an_empty_name_is_not_the_folder_that_the_command_is_called_in(words: list[str], place: Path) -> None:
    before = set(place.iterdir())
    done = call(words)
    assert (done.exit_code, " is empty" in done.stderr) == (mistakes.CODE, True), done.stderr
    assert set(place.iterdir()) == before


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_module_of_ours_is_our_fault_and_no_extra_brings_it(name: str) -> None:
    found = mistakes.describe_error(ModuleNotFoundError(name=f"{name}.absent"), "gradmarket serve")
    assert (found.code, "pip install" in found.fix) == (mistakes.BUG, False)


def test_a_command_names_the_feature_that_it_needs_and_that_was_deleted() -> None:
    missing = ModuleNotFoundError(name="gradmarket.market.features.disputes.referee")
    found = mistakes.describe_error(missing, "gradmarket audit")
    assert (found.code, "`gradmarket audit` needs the feature disputes," in found.what) == (mistakes.CODE, True)


def test_a_missing_module_of_others_is_brought_by_an_extra() -> None:
    found = mistakes.describe_error(ModuleNotFoundError(name="alembic.config"), "gradmarket serve")
    assert found.fix == "pip install 'gradmarket[service]'"


@pytest.mark.parametrize(
    ("remedy", "fix"),
    [
        ("read its state first: GET /v1/jobs/{id}", "look at its state with `gradmarket job show`"),
        ("`gradmarket token revoke alice` first", "`gradmarket token revoke alice` first"),
    ],
)
def test_a_conflict_has_the_remedy_of_the_service_where_that_is_one_for_it(remedy: str, fix: str) -> None:
    problem = ServiceProblem(409, "there is a token named alice", remedy=remedy)
    assert mistakes.describe_error(problem, "gradmarket token create").fix == fix


def test_a_database_without_room_asks_for_room_and_not_for_a_start() -> None:
    with create_engine("sqlite://").connect() as connection:
        connection.exec_driver_sql("pragma max_page_count = 2")
        connection.exec_driver_sql("create table rows (bytes blob)")
        with pytest.raises(OperationalError) as full:
            connection.exec_driver_sql("insert into rows values (zeroblob(100000))")
        with pytest.raises(OperationalError) as broken:
            connection.exec_driver_sql("select * from nowhere")
    found = mistakes.describe_error(full.value, "gradmarket serve")
    assert (found.what, found.fix) == ("the database: database or disk is full", "free some space on the disk")
    assert "GRADMARKET_DATABASE" in mistakes.describe_error(broken.value, "gradmarket serve").fix


@pytest.mark.parametrize(
    ("interrupt", "said"),
    [
        (KeyboardInterrupt(), "Interrupted.\n"),
        (None, "Interrupted: the demo's processes, chain and folder are gone.\n"),
    ],
    ids=["any command", "the demo"],
)
def test_an_interrupted_command_ends_with_one_line(
    interrupt: KeyboardInterrupt | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_interrupted(*_given: object) -> None:
        if interrupt is not None:
            raise interrupt
        before = {number: signal.getsignal(number) for number in STOPS}
        try:
            interrupt_demo(signal.SIGINT, None)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    monkeypatch.setattr("gradmarket.commands.reference.build_settings_page", be_interrupted)
    done = CliRunner().invoke(app, ["settings"])
    assert (done.exit_code, done.stderr) == (INTERRUPTED, said)


def test_a_command_interrupted_before_it_begins_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def be_interrupted(_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gradmarket.cli.pairwise", be_interrupted)
    done = CliRunner().invoke(app, ["settings"])
    assert (done.exit_code, done.stderr) == (INTERRUPTED, "Interrupted.\n")


def test_a_passphrase_file_that_is_missing_asks_for_another(place: Path) -> None:
    done = CliRunner().invoke(app, ["wallet", "show", "--passphrase-file", "none"])
    assert done.stderr.splitlines()[1] == "fix: name a file that you may read, whose first line is the passphrase"


def test_nan_is_refused_as_no_number(place: Path) -> None:
    done = CliRunner().invoke(app, ["worker", "run", "--market", DEAD, "--row-epsilon", "nan"])
    assert done.stderr.startswith("error: --row-epsilon: it is NaN, which is no number\n")
