"""Each fault that the doctor knows, made for real, is found with its fix; a sound part has none."""

import json
import os
import re
import socket
import sqlite3
from pathlib import Path
from threading import Thread

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.commands import checkup
from gradmarket.commands.checkup import CheckResult
from gradmarket.commands.doctor import check_setting_names
from gradmarket.endpoint import data_folder
from gradmarket.market.errors import Refused
from gradmarket.setting_names import find_misspelt_settings
from requester.settings import RequesterSettings
from tests.source_tree import ROOT
from worker.settings import WorkerSettings


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "signer").write_text("11" * 32)
    (tmp_path / "keys" / "signer").chmod(0o600)
    with sqlite3.connect(tmp_path / "gradmarket.sqlite") as database:
        database.execute("CREATE TABLE rows (number INTEGER)")
    database.close()
    return tmp_path


def test_a_sound_folder_needs_no_fix(data: Path) -> None:
    settings = checkup.load_settings_or_fault()
    assert isinstance(settings, RequesterSettings)
    found = [checkup.check_data_folder(data), checkup.check_key_modes(data), checkup.check_database(settings, data)]
    assert [finding.fix for finding in found] == ["", "", ""]


def test_a_folder_that_is_not_there_yet_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet"
    assert checkup.check_data_folder(path).fix == ""
    assert checkup.check_key_modes(path).fix == ""
    assert checkup.check_database(RequesterSettings(), path).fix == ""


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert "--data" in checkup.check_data_folder(tmp_path / "data").fix


def test_a_key_that_others_may_read(data: Path) -> None:
    (data / "keys" / "token").write_text("x")
    (data / "keys" / "token").chmod(0o644)
    found = checkup.check_key_modes(data)
    assert found.fix == f"chmod 600 {data / 'keys' / 'token'}"
    os.system(found.fix)
    assert checkup.check_key_modes(data).fix == "", "its fix mends it"


def test_a_broken_database(data: Path) -> None:
    path = data / "gradmarket.sqlite"
    path.write_bytes(b"\xff" * path.stat().st_size)
    assert "gradmarket restore" in checkup.check_database(RequesterSettings(), data).fix


def test_a_database_server_that_is_not_there(data: Path) -> None:
    found = checkup.check_database(RequesterSettings(database="postgresql://me:word@127.0.0.1:9/nowhere"), data)
    assert "GRADMARKET_DATABASE" in found.fix
    assert "word" not in found.detail


def test_a_full_disk(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "LEAST_FREE", 1 << 62)
    assert "free some space" in checkup.check_disk(data).fix


def test_a_setting_out_of_its_bounds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_SETTLE_GRADIENTS", "0")
    found = checkup.load_settings_or_fault()
    assert isinstance(found, CheckResult)
    assert "GRADMARKET_SETTLE_GRADIENTS" in found.detail
    assert found.fix


def test_a_broker_that_answers_and_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        (found,) = checkup.check_broker(
            RequesterSettings.model_construct(stages="celery", broker=SecretStr(f"redis://127.0.0.1:{port}"))
        )
        assert found.fix == ""
    (found,) = checkup.check_broker(
        RequesterSettings.model_construct(stages="celery", broker=SecretStr("redis://:word@127.0.0.1:9"))
    )
    assert "start Redis" in found.fix
    assert "word" not in found.detail
    assert list(checkup.check_broker(RequesterSettings())) == []


def test_each_part_of_a_service_that_fails_has_its_own_line() -> None:
    body = '{"status": "not ready", "database": "ok", "blobs": "OSError: No space left", "chain": "no answer"}'
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = Thread(target=_answer, args=(listener, body))
        answering.start()
        found = checkup.check_service_parts(f"http://127.0.0.1:{listener.getsockname()[1]}")
        answering.join()
    assert [finding.name for finding in found] == ["service's blobs", "service's chain"]
    assert "No space left" in found[0].detail
    assert all(finding.fix for finding in found)


def test_no_service_at_all() -> None:
    (found,) = checkup.check_service_parts("http://127.0.0.1:9")
    assert "gradmarket serve" in found.fix


def _answer(listener: socket.socket, body: str) -> None:
    made, _ = listener.accept()
    with made:
        made.recv(65536)
        head = f"HTTP/1.1 503 x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        made.sendall((head + body).encode())


def test_doctor_reads_the_own_auditor_s_last_line(tmp_path: Path) -> None:
    own = RequesterSettings(auditor="cpu")
    assert list(checkup.check_auditor(own, tmp_path)) == []
    (tmp_path / "auditor.log").write_text("Auditing for http://here in class cpu.\n")
    (sound,) = checkup.check_auditor(own, tmp_path)
    assert ("in class cpu" in sound.detail, sound.fix) == (True, "")
    (tmp_path / "auditor.log").write_text("error: no runner\nfix: get one\n")
    (ill,) = checkup.check_auditor(own, tmp_path)
    assert str(tmp_path / "auditor.log") in ill.fix
    (none,) = checkup.check_auditor(RequesterSettings(auditor="none"), tmp_path)
    assert (none.fix, "none" in none.detail) == ("", True)


def test_a_misspelt_setting_is_named_with_the_one_that_is_meant() -> None:
    found = list(check_setting_names(["GRADMARKET_DATABASE_URL", "GRADMARKET_DATABASE", "HOME"]))
    assert [one.name for one in found] == ["setting GRADMARKET_DATABASE_URL"]
    assert found[0].fix == "set GRADMARKET_DATABASE, or unset it"


def test_no_name_that_the_compose_file_reads_is_taken_for_a_misspelt_one() -> None:
    read = set(re.findall(r"\$\{(GRADMARKET_\w+)", (ROOT / "docker-compose.yml").read_text()))
    assert read
    assert list(check_setting_names(read)) == []


def test_only_near_misspellings_of_settings_are_reported() -> None:
    names = ["GRADMARKET_DATABSE", "gradmarket_port", "GRADMARKET_MY_OWN", "GRADMARKET_CHAIN_PORT", "HOME"]
    assert list(find_misspelt_settings([*names, "GRADMARKET_WORKER_MAX_DISC", "GRADMARKET_WORKER_MEMORY"])) == [
        "GRADMARKET_DATABSE is no setting, and changes nothing: set GRADMARKET_DATABASE, or unset it",
        "GRADMARKET_WORKER_MAX_DISC is no setting, and changes nothing: set GRADMARKET_WORKER_MAX_DISK, or unset it",
    ]


@pytest.mark.parametrize("command", ["serve", "worker run", "wallet show", "job list", "token list", "audit x y"])
def test_every_command_warns_before_it_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    word = "GRADMARKET_WORKER_" if command in ("worker run", "wallet show") else "GRADMARKET_"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"{word}DATAA", "x")
    monkeypatch.setenv("GRADMARKET_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("requester.cli.lock_data_folder", _end)
    monkeypatch.setattr("worker.cli.run_worker", _end)
    done = CliRunner().invoke(app, command.split())
    assert f"warning: {word}DATAA is no setting, and changes nothing: set {word}DATA, or unset it" in done.stderr


def test_a_warning_beside_json_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_TOKN", "x")
    done = CliRunner().invoke(app, ["job", "list", "--market", "http://127.0.0.1:1", "--json"])
    assert [[*json.loads(line)] for line in done.stderr.splitlines()] == [["warning"], ["error"]]


def _end(*_given: object, **_named: object) -> None:
    raise Refused("enough", "")


@pytest.mark.parametrize("words", [["--data", ""], ["--data="], ["--port", "0", "--data", ""]])
def test_an_empty_folder_is_not_this_one(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--data "$WHERE"` with an unset variable gives this."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["serve", *words])
    assert done.exit_code != 0
    assert "--data is empty: name a folder, or leave it out" in done.stderr
    monkeypatch.setenv("GRADMARKET_DATA", "")
    monkeypatch.setenv("GRADMARKET_WORKER_DATA", "")
    assert (data_folder(), WorkerSettings().data.name) == (
        Path("data"),
        WorkerSettings.model_fields["data"].default.name,
    )
    assert list(tmp_path.iterdir()) == []
