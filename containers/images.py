"""Builds this project's images from docker/Dockerfile with the engine that will run them."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

import typer

from containers.engine import ContainerEngine, found, ran
from gradmarket.market.errors import MarketError
from gradmarket.mistakes import print_error

TARGETS: Final = ("chain", "proxy", "requester", "stages", "worker-cpu")
BUILD_S: Final = 1800.0
MOUNTED: Final = "/wheels"
SOURCE: Final = Path(__file__).resolve().parents[1]
INDEX: Final = "PIP_EXTRA_INDEX_URL"


def build(engine: ContainerEngine, source: Path) -> None:
    """Builds the images from `source`; reuses cached layers."""
    for target in TARGETS:
        command = [engine.program, "build", *_options(engine), "--target", target, "--tag", f"gradmarket/{target}"]
        ran([*command, "--file", str(source / "docker" / "Dockerfile"), str(source)], seconds=BUILD_S)


def _options(engine: ContainerEngine) -> list[str]:
    """Makes pip in the build find torch where pip here finds it; only podman can mount a folder of wheels."""
    options = [*_labelled(), *(["--build-arg", INDEX] if INDEX in os.environ else [])]
    links = _find_links()
    if links.startswith("https://"):
        options += ["--build-arg", f"PIP_FIND_LINKS={links}"]
    if not engine.is_podman:
        return options
    options += ["--format", "docker", "--layers", "--isolation", "chroot", "--network", "host"]
    if Path(links).is_dir() and links:
        options += ["--volume", f"{links}:{MOUNTED}:ro", "--build-arg", f"PIP_FIND_LINKS={MOUNTED}"]
    return options


def _labelled() -> list[str]:
    """Returns the images' labels: the package's version, and the commit where this is a checkout of one."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=SOURCE, capture_output=True, text=True, check=False)
    labels = {"VERSION": metadata.version("gradmarket"), "REVISION": asked.stdout.strip() or "unknown"}
    return [word for name, value in labels.items() for word in ("--build-arg", f"{name}={value}")]


def _find_links() -> str:
    """Returns pip's own setting from its environment or files; empty if there is none."""
    for name in (":env:.find-links", "install.find-links", "global.find-links"):
        done = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", name], capture_output=True, text=True, check=False
        )
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.split()[0]
    return ""


def main() -> None:
    """Builds all images, by whichever engine is there."""
    try:
        build(found(), SOURCE)
    except MarketError as error:
        raise typer.Exit(print_error(error, "make images")) from error


if __name__ == "__main__":
    typer.run(main)
