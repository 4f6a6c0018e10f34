"""`python -m benchmarks.cards [--bench] [--json path]`: checks a card, or measures it; eight minutes at most.

It needs torch, numpy, pydantic and blake3. Where this checkout is not installed it makes an environment without a
network: the computing children are isolated, and import installed packages alone.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
import venv
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
NEEDED: Final = ("torch", "numpy", "pydantic", "blake3", "safetensors")
ALLOWED_S: Final = 480.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-cuda")
    parser.add_argument("--bench", action="store_true", help="measure, too")
    parser.add_argument("--json", type=Path, help="file to write what was found to")
    parser.add_argument("--device", default="cuda", help="cpu plays each check's twin")
    options = parser.parse_args()
    name = "make bench-cuda" if options.bench else "make test-cuda"
    missing = [one for one in NEEDED if find_spec(one) is None]
    if missing:
        print(f"{name}: skipped, {sys.executable} lacks {', '.join(missing)}")
        return 0
    if not _is_installed():
        return subprocess.run([_make_environment(), "-m", "benchmarks.cards", *sys.argv[1:]], check=False).returncode
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic kernels need it before CUDA starts
    from benchmarks.cards.checks import run_checks  # noqa: PLC0415 - its imports may be missing
    from benchmarks.cards.lines import Line  # noqa: PLC0415
    from benchmarks.cards.speed import measure_card  # noqa: PLC0415
    from benchmarks.cuda import PREFIX, build_figure  # noqa: PLC0415
    from graphdoc.runner.cards import list_cards  # noqa: PLC0415

    cards = list_cards()
    if options.device != "cpu" and cards.fault:
        print(f"{name}: skipped, no card: {cards.fault}")
        return 0
    deadline, found = time.monotonic() + ALLOWED_S, []
    measured = measure_card(options.device, deadline) if options.bench else ()
    for line in itertools.chain(run_checks(options.device, deadline), measured):
        found.append(asdict(line))
        print(json.dumps(found[-1]), flush=True)
    if options.json:
        card = options.device if cards.fault else cards.cards[0].name
        lines = [Line(**line) for line in found if line["name"].startswith(PREFIX) and line["value"] is not None]
        figures = [build_figure(line, card).line() for line in lines]
        whole = {"cards": asdict(cards), "device": options.device, "found": found, "figures": figures}
        options.json.write_text(json.dumps(whole, indent=2) + "\n")
    failed = [line["name"] for line in found if line["ok"] is False]
    failures = f"; FAILED: {', '.join(failed)}" if failed else ""
    print(f"{name}: {len(found) - len(failed)} of {len(found)} hold{failures}")
    return 1 if failed else 0


def _is_installed() -> bool:
    """Returns whether an isolated child of this Python finds the packages."""
    code = "import graphdoc.runner.child, gradmarket.runner.architectures"
    command = [sys.executable, "-I", "-c", code]
    return subprocess.run(command, capture_output=True, cwd=os.sep, check=False).returncode == 0


def _make_environment() -> str:
    """Returns the Python of an environment that finds this checkout and all that this Python finds."""
    folder = ROOT / "build" / "cards"
    venv.EnvBuilder(system_site_packages=True, symlinks=True, clear=True).create(folder)
    site = next(folder.glob("lib/python3.*/site-packages"))
    paths = dict.fromkeys([str(ROOT), *(path for path in sys.path if path and Path(path).is_dir())])
    (site / "checkout.pth").write_text(
        "".join(f"{path}\n" for path in paths if Path(path).name not in ("lib-dynload", Path(os.__file__).parent.name))
    )
    return str(folder / "bin" / "python")


if __name__ == "__main__":
    sys.exit(main())
