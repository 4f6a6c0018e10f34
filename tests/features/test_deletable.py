"""Each feature is deletable: a copy of the tree without its folders and its line in the tuple plays a whole job."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.rig.wheel import tracked
from requester.feature import Feature
from requester.features import FEATURES
from requester.store.tables import Base
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
    "tests/features",
)
COPIED = (*PACKAGES, "tests", "benchmarks", "pyproject.toml")
PROGRAMS = ("requester.cli", "requester.features.many_machines.queue", "worker.cli.worker_commands", "gradmarket.cli")
KERNEL = (
    "tests/test_layers.py::test_every_module_keeps_the_rule",
    "tests/requester/test_claims.py",
    "tests/requester/test_honest_run.py::test_three_rounds[sqlite]",
)
ABSENT_TABLES = """
import requester.features
from requester.store import schema
from requester.store.session import open_engine

database = open_engine("sqlite:///migrated.db")
schema.upgrade_schema(database)
for _kind, item in schema.list_schema_differences(database):
    print(getattr(item, "table", item).name)
"""


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


def copy_without(names: set[str], target: Path) -> None:
    """Copies what is tracked, but for these features' folders or files, and their lines in the registry."""
    places = tuple(f"{side}/{name}{end}" for side in SIDES for name in names for end in ("/", ".py"))
    for path in tracked():
        if path.startswith(COPIED) and not path.startswith(places):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, target / path)
    for feature in (one for one in ALL if one.name in names):
        remove_lines(target / type(feature).__module__.partition(".")[0] / "features/__init__.py", feature)
    remove_faults(target / "gradmarket/market/features/__init__.py", names)


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
        found = rf"^from gradmarket\.market\.features\.{name}\.\S+ import (\w+)\n"
        for fault in re.findall(found, text, flags=re.M):
            text, count = re.subn(rf"^    {fault},\n", "", text, flags=re.M)
            assert count == 1
        text = re.sub(found, "", text, flags=re.M)
    registry.write_text(text)


def run(tree: Path, *arguments: str) -> str:
    environment = {"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("name", dict.fromkeys(feature.name for feature in ALL))
def test_a_tree_without_the_feature_plays_a_whole_job(name: str, tmp_path: Path) -> None:
    gone = with_dependents(name)
    copy_without(gone, tmp_path)
    left = (program for program in PROGRAMS if (tmp_path / f"{program.replace('.', '/')}.py").is_file())
    run(tmp_path, "-c", f"import {', '.join(left)}")
    different = set(run(tmp_path, "-c", ABSENT_TABLES).split())
    assert different == tables_of(gone), "the migrations make these tables still, and all others are declared"
    databases = ("-k", "not postgresql") if "many_machines" in gone else ()  # which several processes share by it
    run(tmp_path, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "--disable-warnings", *databases, *KERNEL)
