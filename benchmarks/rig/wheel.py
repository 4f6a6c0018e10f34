"""The wheel of this checkout, built from a copy of its tracked files: nothing else can get into it."""

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.pages import ROOT


def tracked() -> list[str]:
    """Names of the checkout's files, from its root."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for path in listed.splitlines() if (ROOT / path).is_file()]


def built(folder: Path) -> Path:
    """Builds the wheel in `folder`, without the network, and returns its path."""
    source = folder / "source"
    for path in tracked():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, source / path)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(source)], check=True, capture_output=True)
    (wheel,) = folder.glob("gradmarket-*.whl")
    return wheel
