"""Each extra brings exactly its commands' imports: all other packages are hidden, as if not installed."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.source_tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HIDING = """
import sys
from importlib import import_module, metadata
allowed = set(sys.argv[1].split(","))
OWNERS = metadata.packages_distributions()
OWNERS = {top: {name.lower().replace("_", "-") for name in names} for top, names in OWNERS.items()}
class Finder:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        owners = OWNERS.get(name.partition(".")[0])
        return None if owners and not owners & allowed else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = map(Finder, sys.meta_path)
"""
IMPORTS = HIDING + "for module in sys.argv[2:]: import_module(module)"
RUNS = HIDING + "sys.argv = ['gradmarket', *sys.argv[2:]]\nfrom gradmarket.cli import app\napp()"

BASE = ["gradmarket.commands.job_commands", "gradmarket.commands.verdict", "gradmarket.commands.token",
        "gradmarket.mistakes", "gradmarket.commands.new", "gradmarket.commands.ledger"]  # fmt: skip
NEEDS = {
    "": BASE,
    "sdk": [*BASE, "gradmarket.sdk", "gradmarket.commands.data", "gradmarket.data.sources", "gradmarket.callbacks",
            "graphdoc.formats.parquet", "graphdoc.document.publish"],
    "worker": [*BASE, "worker.run", "worker.cli", "gradmarket.runner.step_child",
               "gradmarket.commands.auditor_command", "gradmarket.market.gradient.codecs.two_bit",
               "graphdoc.formats.parquet", "gradmarket.market.features.secure_sums.holder"],
    "service": [*BASE, "requester.cli", "requester.features.many_machines.queue", "requester.wiring",
                "requester.stages.aggregate", "gradmarket.runner.publishing", "gradmarket.commands.features.backup",
                "gradmarket.commands.doctor", "gradmarket.commands.chain", "gradmarket.ready_data.digits",
                "gradmarket.commands.reference", "gradmarket.commands.migrate",
                "gradmarket.market.features.secure_sums.collector"],
}  # fmt: skip


def closure(extra: str) -> set[str]:
    """Names of the distributions that `pip install gradmarket[extra]` brings."""
    found: set[str] = {"gradmarket"}
    waiting = [Requirement(text) for text in PROJECT["dependencies"]]
    waiting += [Requirement(text) for text in PROJECT["optional-dependencies"].get(extra, [])]
    while waiting:
        want = waiting.pop()
        if canonicalize_name(want.name) in found:
            continue
        found.add(canonicalize_name(want.name))
        for text in metadata.requires(want.name) or []:
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": name}) for name in (want.extras or {""})):
                waiting.append(inner)
    return found


def hidden(program: str, extra: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, ",".join(closure(extra)), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("extra", NEEDS)
def test_an_extra_suffices_for_its_imports(extra: str) -> None:
    done = hidden(IMPORTS, extra, *NEEDS[extra])
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_worker_brings_no_database_and_a_client_no_torch() -> None:
    assert not closure("worker") & {"sqlalchemy", "celery", "fastapi", "psycopg", "boto3", "scikit-learn"}
    assert not closure("") & {"torch", "web3", "sqlalchemy", "pyarrow", "fastapi"}
    assert not closure("sdk") & {"web3", "sqlalchemy", "fastapi", "celery"}


@pytest.mark.parametrize(
    ("words", "missing", "extra"),
    [
        (["worker", "run", "--market", "http://127.0.0.1:1"], "web3", "worker"),
        (["wallet", "show"], "web3", "worker"),
        (["serve"], "", "service"),
        (["data", "upload", "packed"], "", "sdk"),
    ],
)
def test_a_command_without_its_extra_names_the_extra_to_install(words: list[str], missing: str, extra: str) -> None:
    done = hidden(RUNS, "", *words)
    assert done.returncode == 2
    assert "which is not installed" in done.stderr
    assert missing in done.stderr
    assert f"fix: pip install 'gradmarket[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_without_its_extra_names_a_missing_package_and_the_extra() -> None:
    done = hidden(HIDING + "from gradmarket import Market", "")
    missing = re.search(r"Market needs (\w+), which is not installed: pip install 'gradmarket\[sdk\]'", done.stderr)
    assert missing is not None
    assert missing[1] in closure("sdk") - closure("")
    assert done.stderr.count("Traceback") == 1, "one error, not the one that it came from"
