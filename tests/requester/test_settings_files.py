"""Secrets as files: read where the environment is silent, and only from the folder that it names."""

from pathlib import Path

import pytest

from requester.settings import RequesterSettings


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TOKEN", "DATABASE", "SECRETS"):
        monkeypatch.delenv(f"GRADMARKET_{name}", raising=False)
    (tmp_path / "gradmarket_token").write_text("the token\n")
    (tmp_path / "gradmarket_database").write_text("postgresql://somebody:secret@there/gradmarket\n")
    return tmp_path


def token(settings: RequesterSettings) -> str | None:
    return settings.token.get_secret_value() if settings.token else None


def test_a_secret_is_read_from_its_file(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_SECRETS", str(secrets))
    settings = RequesterSettings()
    assert token(settings) == "the token"
    assert settings.database_url == "postgresql://somebody:secret@there/gradmarket"


def test_the_environment_goes_before_the_file(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMARKET_SECRETS", str(secrets))
    monkeypatch.setenv("GRADMARKET_TOKEN", "another")
    assert token(RequesterSettings()) == "another"


def test_no_folder_is_read_that_is_not_named(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(secrets)
    assert token(RequesterSettings()) is None
