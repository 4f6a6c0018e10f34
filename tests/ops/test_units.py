"""The systemd units and the compose file start existing commands, with options that they take."""

import configparser
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gradmarket.cli import app

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "ops" / "systemd").iterdir())


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_a_command_with_its_options(unit: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(unit)
    service = parser["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program == "/opt/gradmarket/bin/gradmarket"
    shown = CliRunner().invoke(app, [word for word in words if not word.startswith(("-", "/"))] + ["--help"]).output
    assert [word for word in words if word.startswith("--") and word not in shown] == []
    assert words[words.index("--data") + 1] == f"/var/lib/{service['StateDirectory']}", "it may write nowhere else"
    assert (service["ProtectSystem"], service["NoNewPrivileges"], service["CapabilityBoundingSet"]) == (
        "strict",
        "yes",
        "",
    )


def test_monitoring_is_made_of_files_that_are_there() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    watching = {
        name: service for name, service in compose["services"].items() if "monitoring" in service.get("profiles", [])
    }
    assert set(watching) == {"prometheus", "grafana"}
    for service in watching.values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in compose["volumes"]
    scraped = yaml.safe_load((ROOT / "ops" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    (found,) = scraped[0]["dns_sd_configs"]
    assert found["names"] == ["requester"]
    assert "inside" in watching["prometheus"]["networks"]
