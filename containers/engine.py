"""Runs docker or podman, whichever is available, by its command line; compose by docker's own or podman-compose."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.toolchain import ToolMissing
from gradmarket.demo.children import DemoFailed

SECONDS: Final = 180.0
LAST_WORDS: Final = 2000
PROBE: Final = "python:3.11-slim-bookworm"
"""The base image of all images of this project."""


@dataclass(frozen=True)
class ContainerEngine:
    """`compose` is the command that reads a compose file."""

    program: str
    compose: tuple[str, ...]

    @property
    def is_podman(self) -> bool:
        return self.program == "podman"

    def __call__(self, *arguments: str, seconds: float = SECONDS) -> str:
        """Returns the command's output; raises DemoFailed with its last output if it fails."""
        return ran([self.program, *arguments], seconds=seconds)

    def ask(self, *arguments: str) -> str:
        """Returns the command's output, or "" if it fails: for things that may no longer exist."""
        try:
            return self(*arguments)
        except DemoFailed:
            return ""


def ran(
    command: Sequence[str],
    seconds: float = SECONDS,
    settings: Mapping[str, str] | None = None,
    here: Path | None = None,
) -> str:
    environment = os.environ | dict(settings or {})
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env=environment, cwd=here, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DemoFailed(f"`{' '.join(command[:4])} …` takes longer than {seconds:.0f} s") from error
    if done.returncode != 0:
        output = (done.stderr + done.stdout)[-LAST_WORDS:].strip()
        raise DemoFailed(f"`{' '.join(command[:4])} …` ends with {done.returncode}:\n{output}")
    return done.stdout


def found() -> ContainerEngine:
    """Returns the engine that works. Raises ToolMissing, with each one's fault, if none does."""
    lacks = []
    for engine in (ContainerEngine("docker", ("docker", "compose")), ContainerEngine("podman", (_podman_compose(),))):
        trouble = _trouble(engine)
        if not trouble:
            return engine
        lacks.append(f"{engine.program}: {trouble}")
    raise ToolMissing(f"an engine for containers ({'; '.join(lacks)})")


def _trouble(engine: ContainerEngine) -> str:
    if shutil.which(engine.program) is None:
        return "it is not on the PATH"
    if shutil.which(engine.compose[0]) is None:
        return f"{engine.compose[0]} is not on the PATH"
    try:
        ran([engine.program, "info"])
        ran([*engine.compose, "version"])
    except DemoFailed as error:
        return str(error)
    return ""


def _podman_compose() -> str:
    """Returns podman-compose from the folder of this Python, where `make develop` puts it, or from the PATH."""
    beside = Path(sys.executable).parent / "podman-compose"
    return str(beside) if beside.exists() else "podman-compose"


def why_not() -> str:
    """Returns why no container can run on this machine; empty if one can."""
    try:
        found()("run", "--rm", "--network", "none", PROBE, "true")
    except (ToolMissing, DemoFailed) as error:
        return str(error)
    return ""
