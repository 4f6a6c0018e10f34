"""Each feature is deletable: a copy of the tree without its folders and its line in the tuple plays a whole job.

Half of the features go at once, in as few plays as have each feature gone while each that does not need it is there.
"""

import re
import shutil
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.rig.wheel import tracked
from requester.feature import Feature
from requester.features import FEATURES
from requester.store.tables import Base
from tests.features.forked_play import play_tree
from tests.lanes import FULL
from tests.source_tree import PACKAGES, ROOT
from worker.feature import WorkerFeature
from worker.features import FEATURES as WORKER_FEATURES

pytestmark = FULL

ALL = (*FEATURES, *WORKER_FEATURES)
SIDES = (
    "requester/features",
    "worker/features",
    "gradmarket/market/features",
    "gradmarket/commands/features",
    "gradmarket/runner/features",
    "gradmarket/public_audit/features",
    "tests/features",
)
COPIED = (*PACKAGES, "tests", "benchmarks", "pyproject.toml")
PROGRAMS = ("requester.cli", "requester.features.many_machines.queue", "worker.cli", "gradmarket.cli")
KERNEL = "tests/requester/test_honest_run.py::test_three_rounds[sqlite]"
ABSENT = """
from importlib import import_module
from pathlib import Path

import requester.features
from gradmarket.cli import COMMANDS
from gradmarket.mistakes import find_absent_feature
from requester.store import schema
from requester.store.session import open_engine
from tests.kit.schemas import list_schema_differences

Path("migrated.db").unlink(missing_ok=True)
database = open_engine("sqlite:///migrated.db")
schema.upgrade_schema(database)
with open("tables", "w") as tables:
    for _kind, item in list_schema_differences(database):
        print(getattr(item, "table", item).name, file=tables)
with open("needed", "w") as needed:
    for module, _attribute, _help in COMMANDS.values():
        try:
            import_module(module)
        except ModuleNotFoundError as missing:
            print(find_absent_feature(missing) or missing, file=needed)
"""
"""Writes the tables that only migrations have, and the features that commands lack: a command is a tool, which names
the feature that it needs."""


def with_dependents(name: str) -> set[str]:
    """The feature, and the features that need it."""
    gone = {name}
    while more := {other.name for other in ALL if gone & set(other.needs)} - gone:
        gone |= more
    return gone


def tables_of(names: set[str]) -> set[str]:
    places = {f"requester.features.{name}" for name in names}
    mappers = Base.registry.mappers
    return {str(one.local_table.name) for one in mappers if ".".join(one.class_.__module__.split(".")[:3]) in places}


def removed_together(names: Sequence[str]) -> list[set[str]]:
    """Returns sets of features such that of any two, unless the second needs the first, one set has the first alone."""
    apart = {(gone, left) for gone in names for left in set(names) - with_dependents(gone)}
    sets = list[set[str]]()
    while apart:
        chosen = set[str]()
        for name in names:
            chosen = max(chosen, chosen | with_dependents(name), key=lambda each: len(select_removed(apart, each)))
        sets.append(chosen)
        apart -= select_removed(apart, chosen)
    return sets


def select_removed(pairs: Set[tuple[str, str]], chosen: set[str]) -> set[tuple[str, str]]:
    return {(gone, left) for gone, left in pairs if gone in chosen and left not in chosen}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a copy of the tracked files, with their compiled parts."""
    target = tmp_path_factory.mktemp("tree")
    for path in map(Path, tracked()):
        if str(path).startswith(COPIED):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, target / path)
            for compiled in (ROOT / path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
                (target / path.parent / "__pycache__").mkdir(exist_ok=True)
                shutil.copy2(compiled, target / path.parent / "__pycache__")
    return target


@contextmanager
def without(names: set[str], tree: Path, aside: Path) -> Iterator[None]:
    """The tree lacks these features' folders or files, and their lines in the registries, meanwhile."""
    registries = {tree / side / "__init__.py" for side in SIDES}
    before = {path: path.read_text() for path in registries if path.is_file()}
    places = [tree / side / f"{name}{end}" for side in SIDES for name in names for end in ("", ".py")]
    there = [place for place in places if place.exists()]
    for number, place in enumerate(there):
        place.rename(aside / str(number))
    for feature in (one for one in ALL if one.name in names):
        remove_lines(tree / type(feature).__module__.partition(".")[0] / "features/__init__.py", feature)
    remove_faults(tree / "gradmarket/market/features/__init__.py", names)
    for path in before:
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    try:
        yield
    finally:
        for number, place in enumerate(there):
            (aside / str(number)).rename(place)
        for path, text in before.items():
            path.write_text(text)


def remove_lines(registry: Path, feature: Feature | WorkerFeature) -> None:
    """Removes the feature's import and its line in the tuple."""
    name = type(feature).__name__
    kept, count = re.subn(rf"^(from \S+ import {name}|    {name}\(\),)\n", "", registry.read_text(), flags=re.M)
    assert count == 2
    registry.write_text(kept)


def remove_faults(registry: Path, names: set[str]) -> None:
    """Removes the imports of the features' faults, and their lines in the tuple."""
    text = registry.read_text()
    for name in names:
        found = rf"^from gradmarket\.market\.features\.{name}(?:\.\S+)? import (\w+)\n"
        for fault in re.findall(found, text, flags=re.M):
            text, count = re.subn(rf"^    {fault},\n", "", text, flags=re.M)
            assert count == 1
        text = re.sub(found, "", text, flags=re.M)
    registry.write_text(text)


@pytest.mark.parametrize("gone", removed_together(list(dict.fromkeys(feature.name for feature in ALL))))
def test_a_tree_without_the_features_plays_a_whole_job(gone: set[str], tree: Path, tmp_path: Path) -> None:
    with without(gone, tree, tmp_path):
        left = [program for program in PROGRAMS if (tree / f"{program.replace('.', '/')}.py").is_file()]
        words = ("-n", "0", "-p", "no:cacheprovider", "--disable-warnings", KERNEL)
        code = play_tree(tree, left, ABSENT, words, tmp_path / "output")
    assert code == 0, f"without {sorted(gone)}:\n{(tmp_path / 'output').read_text()[-8000:]}"
    different = set((tree / "tables").read_text().split())
    assert different == tables_of(gone), "the migrations make these tables still, and all others are declared"
    assert set((tree / "needed").read_text().split("\n")) <= {*gone, ""}, "a command needs no feature that is there"
