"""Promises of the Dockerfile for every image that is run: labels, a user without rights, and a health check."""

import re
from pathlib import Path

import pytest
import yaml

from containers.images import TARGETS, _labelled

ROOT = Path(__file__).parents[2]
STAGES: dict[str, tuple[str, str]] = {
    match["name"]: (match["base"], match["body"])
    for match in re.finditer(
        r"^FROM (?P<base>\S+) AS (?P<name>\S+)$(?P<body>.*?)(?=^FROM |\Z)",
        (ROOT / "docker" / "Dockerfile").read_text(),
        re.MULTILINE | re.DOTALL,
    )
}
IMAGES = (*TARGETS, "worker-cuda")


def lines_of(stage: str, word: str) -> list[str]:
    """The instructions of a stage and of those that it is built on, its own first."""
    if stage not in STAGES:
        return []
    base, body = STAGES[stage]
    return re.findall(rf"^{word} ((?:.*\\\n)*.*)", body, re.MULTILINE) + lines_of(base, word)


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_labels_no_rights_and_a_look_at_its_health(image: str) -> None:
    (label, *_) = lines_of(image, "LABEL")
    for name in ("title", "licenses", "version=$VERSION", "revision=$REVISION"):
        assert f"org.opencontainers.image.{name}" in label
    assert lines_of(image, "USER")[0] == "10001:10001"
    assert lines_of(image, "HEALTHCHECK")
    assert lines_of(image, "ENTRYPOINT") or lines_of(image, "CMD")


def test_nothing_is_installed_after_an_argument_that_changes_with_each_commit() -> None:
    """Every layer after it is made anew."""
    for name, (_, body) in STAGES.items():
        _, found, after = body.partition("REVISION=unknown")
        assert not found or (name in IMAGES and "\nRUN " not in after)


def test_compose_runs_images_that_are_built() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].values()
    ours = {service["image"].removeprefix("gradmarket/") for service in services if "gradmarket/" in service["image"]}
    assert {name.replace("${GRADMARKET_WORKER_KIND:-cpu}", "cpu") for name in ours} == set(TARGETS)


def test_labels_name_version_and_commit() -> None:
    told = dict(word.split("=") for word in _labelled() if "=" in word)
    assert re.fullmatch(r"\d+\.\d+\.\d+", told["VERSION"])
    assert re.fullmatch(r"[0-9a-f]{40}|unknown", told["REVISION"])
