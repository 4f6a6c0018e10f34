"""The key: made once, kept from others, readable with its passphrase alone, never replaced."""

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.worker import durable, wallet
from gradmarket.worker.cli.worker_commands import app


def test_a_plain_key_is_its_owners_alone(tmp_path: Path) -> None:
    made = wallet.create(tmp_path, None)
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert wallet.load(tmp_path, None) == made
    assert str(made.path) in made.backup()
    assert "NOT encrypted" in made.backup()


def test_an_encrypted_key_needs_its_passphrase(tmp_path: Path) -> None:
    made = wallet.create(tmp_path, "correct horse")
    assert json.loads(made.path.read_text())["version"] == 3
    assert made.key.to_bytes().hex() not in made.path.read_text()
    assert wallet.load(tmp_path, "correct horse") == made
    for wrong in ("incorrect", None):
        with pytest.raises(Refused):
            wallet.load(tmp_path, wrong)


def test_a_key_is_never_replaced(tmp_path: Path) -> None:
    made = wallet.load_or_create(tmp_path, None)
    with pytest.raises(Conflict):
        wallet.create(tmp_path, None)
    assert wallet.load_or_create(tmp_path, None) == made


def test_a_damaged_or_missing_key_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        wallet.load(tmp_path, None)
    durable.write(tmp_path / wallet.PLAIN, b"not a key")
    with pytest.raises(Refused, match="cannot be read"):
        wallet.load(tmp_path, None)


def test_the_commands_make_and_show_it(tmp_path: Path) -> None:
    run = CliRunner()
    made = run.invoke(app, ["wallet", "new", "--data", str(tmp_path), "--plain-key"])
    assert made.exit_code == 0
    assert "Back it up" in made.output
    shown = json.loads(run.invoke(app, ["wallet", "show", "--data", str(tmp_path), "--json"]).output)
    assert shown["address"] == wallet.load(tmp_path, None).address
    again = run.invoke(app, ["wallet", "new", "--data", str(tmp_path), "--plain-key"])
    assert again.exit_code == 1
    assert "is there already" in again.output


def test_a_file_holds_the_old_bytes_or_the_new_ones(tmp_path: Path) -> None:
    durable.write(tmp_path / "deep" / "file", b"old")
    durable.write(tmp_path / "deep" / "file", b"new")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]
    assert (tmp_path / "deep" / "file").read_bytes() == b"new"


def test_without_a_passphrase_no_key_is_made_unless_that_is_said(tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["wallet", "new", "--data", str(tmp_path)])
    assert made.exit_code == 1
    assert "--plain-key" in made.output
    assert wallet.find(tmp_path) is None


def test_a_plain_key_is_put_under_a_passphrase_from_a_file(tmp_path: Path) -> None:
    plain, secret = wallet.create(tmp_path, None), tmp_path / "passphrase"
    secret.write_text("correct horse\n")
    done = CliRunner().invoke(app, ["wallet", "encrypt", "--data", str(tmp_path), "--passphrase-file", str(secret)])
    assert done.exit_code == 0, done.output
    assert wallet.load(tmp_path, "correct horse").key == plain.key
    assert not plain.path.exists()
    shown = CliRunner().invoke(
        app, ["wallet", "show", "--data", str(tmp_path), "--passphrase-file", str(secret), "--json"]
    )
    assert json.loads(shown.output)["encrypted"] is True
    again = CliRunner().invoke(app, ["wallet", "encrypt", "--data", str(tmp_path), "--passphrase-file", str(secret)])
    assert again.exit_code == 1


def test_where_money_is_real_a_key_is_encrypted_or_asked_for_as_plain(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="passphrase"):
        wallet.load_or_create(tmp_path, None, plain=False)
    assert wallet.find(tmp_path) is None
    made = wallet.load_or_create(tmp_path, None, plain=True)
    with pytest.raises(Refused, match="wallet encrypt"):
        wallet.load_or_create(tmp_path, "correct horse", plain=False)
    assert wallet.load_or_create(tmp_path, None, plain=True) == made


@pytest.mark.parametrize("text", [None, ""])
def test_a_passphrase_file_without_one_is_said(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "passphrase"
    if text is not None:
        path.write_text(text)
    done = CliRunner().invoke(app, ["wallet", "new", "--data", str(tmp_path), "--passphrase-file", str(path)])
    assert done.exit_code == 1
    assert str(path) in done.output
