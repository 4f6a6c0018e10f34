"""Plays a tree's tests in a process that has imported others' packages already, and nothing of ours."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

PRELOADED: Final = [
    *("pytest", "hypothesis", "sqlalchemy.orm", "alembic.command", "psycopg", "fastapi", "uvicorn", "httpx", "web3"),
    *("celery", "redis", "typer", "pydantic_settings", "opentelemetry.sdk.trace", "numba", "scipy.optimize"),
]
ROOT: Final = Path(__file__).resolve().parents[2]
EDITABLE: Final = "__editable__"
"""Part of the name of the finder that would find the tree's missing modules in the checkout."""
SERVER: Final = get_context("forkserver")
SERVER.set_forkserver_preload(PRELOADED)


def play_tree(tree: Path, modules: Sequence[str], program: str, words: Sequence[str], output: Path) -> int | None:
    """Imports the modules from the tree, executes the program and runs pytest there; returns the exit code."""
    child = SERVER.Process(target=_play, args=(str(tree), tuple(modules), program, tuple(words), str(output)))
    child.start()
    child.join()
    return child.exitcode


def _is_ours(module: object) -> bool:
    """Returns whether it is of this checkout, and not of its environment, as this module is."""
    path = Path(getattr(module, "__file__", None) or "/")
    return path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / ".venv")


def _play(tree: str, modules: Sequence[str], program: str, words: Sequence[str], output: str) -> None:
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.chdir(tree)
    for name in [name for name, module in sys.modules.items() if _is_ours(module)]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if EDITABLE not in getattr(finder, "__module__", "")]
    sys.path.insert(0, tree)
    os.environ["PYTHONPATH"] = tree
    for name in modules:
        assert str(import_module(name).__file__).startswith(tree)
    exec(compile(program, "<program>", "exec"), {})  # noqa: S102
    sys.stdout.flush()
    sys.exit(pytest.main(list(words)))
