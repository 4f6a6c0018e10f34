"""docs/settings.md is generated from the code, and every setting has a meaning."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.commands.reference import KINDS, build_settings_page, list_setting_rows
from gradmarket.market.errors import Refused
from gradmarket.user_files import settings_from
from requester.settings import RequesterSettings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == build_settings_page(), "run: gradmarket settings > docs/settings.md"


@pytest.mark.parametrize("title", KINDS)
def test_every_setting_has_a_description(title: str) -> None:
    assert [row["name"] for row in list_setting_rows(KINDS[title]) if not row["meaning"]] == []


def test_the_page_shows_no_secret_and_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_TOKEN", "a-secret-token")
    assert "a-secret-token" not in build_settings_page()
    assert str(Path.home()) not in build_settings_page()


def test_the_command_prints_the_page_and_its_data() -> None:
    assert CliRunner().invoke(app, ["settings"]).stdout == build_settings_page()
    told = json.loads(CliRunner().invoke(app, ["settings", "--json"]).stdout)
    assert {row["name"] for row in told["The service"]} >= {"GRADMARKET_DATA", "GRADMARKET_ADDRESS_RATE"}


def test_an_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So a compose file may pass on variables that the operator did not set."""
    monkeypatch.setenv("GRADMARKET_OWNER", "")
    monkeypatch.setenv("GRADMARKET_TOKEN", "")
    monkeypatch.setenv("GRADMARKET_SECRETS", str(tmp_path))
    (tmp_path / "gradmarket_token").write_text("of the file")
    settings = RequesterSettings()
    assert settings.owner is None
    assert settings.token is not None
    assert settings.token.get_secret_value() == "of the file"


@pytest.mark.parametrize(("name", "value"), [("URL", "http://["), ("URL", "http://a:x"), ("BROKER", "redis://[")])
def test_a_malformed_address_is_refused_by_its_setting(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"GRADMARKET_{name}", value)
    with pytest.raises(Refused, match=f"GRADMARKET_{name}: .*no address of .*: write it like"):
        settings_from(RequesterSettings, {})
