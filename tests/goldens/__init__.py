"""Outputs that stay while files move: committed, and written anew by `python -m tests.goldens` on purpose alone."""

import json
from pathlib import Path
from typing import Any, Final

DATA: Final = Path(__file__).parent / "data"


def read_golden(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def write_golden(name: str, found: Any) -> None:
    (DATA / f"{name}.json").write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
