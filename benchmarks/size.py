"""The size of a run: that of the quoted figures, or the smallest that goes all the way (`make bench SMALLEST=1`).

The smallest takes seconds and shows only that a benchmark still runs: its figures mean nothing. A benchmark's children
inherit the choice by the environment.
"""

import os
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.pages import RESULTS, ROOT

SMALLEST: Final = "BENCHMARKS_SMALLEST"
"""The environment variable."""
OUTPUT: Final = ROOT / "build" / "smallest"

Size = TypeVar("Size")


def sized(usual: Size, smallest: Size) -> Size:
    return smallest if SMALLEST in os.environ else usual


def curves_folder() -> Path:
    """Returns where measured curves go: to the committed results, unless they are those of the smallest run."""
    return sized(RESULTS, OUTPUT) / "curves"


def pictures_folder() -> Path:
    """Returns the folder where pictures of results go, likewise."""
    folder = sized(ROOT / "docs", OUTPUT)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
