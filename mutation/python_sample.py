"""The share of faults in requester, worker and market that tests notice: `make mutants-sample LANE=test JSON=path`.

Each of a seeded sample of small faults (python_mutants.py) is put into a copy of the tree, and those of the lane's
tests that import the changed module run on it until one fails: first the files that import it from near by or name the
changed function, the cheap ones before those that start processes. A test that fails without the fault too is left
out. A fault whose tests took longer than `patience`, in seconds of a processor, is neither caught nor survived. A run
continues an existing JSON: faults caught in it are not tried again.
"""

import argparse
import ast
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Final, NoReturn

import psutil
import pytest

from benchmarks.rig.cpu import tree_cpu_s
from mutation.python_mutants import PythonMutant, sample
from tests.source_tree import PACKAGES

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = ("requester", "worker", "gradmarket/market", "graphdoc")
SKIPPED: Final = (".git", ".venv", "node_modules", "build", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".peers")
LANES: Final = {"test": "not full", "all": ""}
COSTS: Final = {
    "market": 0, "data": 0, "models": 0, "graphdoc": 1, "goldens": 1, "simulation": 1, "requester": 2, "chain": 2,
    "network": 2, "api": 3, "features": 3, "worker": 3, "blobs": 3, "contracts": 3, "runner": 4, "fuzz": 4, "ops": 5,
    "sdk": 6, "attacks": 7, "benchmarks": 8, "e2e": 8, "containers": 9,
}  # fmt: skip
"""The rough cost of a folder's tests; files in `tests` itself have cost 1."""
BATCHES: Final = (3, 9, 30)
"""Files of the first calls; the last has all others."""
PRELOADED: Final = (
    "numba",
    "torch",
    "pyarrow.parquet",
    "sqlalchemy.orm",
    "fastapi",
    "web3",
    "hypothesis",
    "httpx",
    "celery",
)
"""The dearest imports of the tests."""
HANGS_S: Final = 180
"""After which a test that waits for ever fails: long enough for one without a fault on a busy machine."""
_OWN: Final = re.compile(r"(?:FAILED|ERROR) (\S+\.py(?:::[^\s\[]+(?:\[.*?\])?)?)")


@dataclass
class Verdict:
    """The fate of a fault: "caught", "survived", or "undecided" where patience ended."""

    mutant: str
    file: str
    line: int
    change: tuple[str, str, str, str]
    fate: str = "undecided"
    by: str = ""
    tried: int = 0
    """Test files that ran."""
    seconds: float = 0.0
    """Of a processor, for the tests with the fault."""


@dataclass
class Copy:
    """A copy of the tree, whose modules are the ones that its tests import, and their child processes too."""

    folder: Path
    lane: str
    broken: list[str] = field(default_factory=list)
    """Tests that fail without any fault."""

    @classmethod
    def at(cls, folder: Path, lane: str) -> "Copy":
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*SKIPPED), dirs_exist_ok=True, symlinks=True)
        for name in (".venv", "contracts/node_modules"):
            (folder / name).symlink_to(ROOT / name)
        return cls(folder, lane)

    def run(self, tests: Sequence[str], seconds: float) -> tuple[int | None, str, float]:
        """Returns pytest's exit code, the test that failed, and the processor's seconds; None where they are more."""
        words = ["-x", "-n", "0", "-rfE", "--disable-warnings", "--tb=no", "-p", "no:cacheprovider"]
        words += ["--timeout", str(HANGS_S), "--timeout-method", "thread", *(("-m", self.lane) if self.lane else ())]
        words += [word for name in self.broken for word in ("--deselect", name)]
        with TemporaryFile() as output:
            pid = os.fork()
            if pid == 0:
                self._test([*words, *tests], output.fileno())
            code, taken = _ended(pid, seconds)
            output.seek(0)
            output_text = output.read().decode(errors="replace").strip()
        found = _OWN.search(output_text)
        return code, found[1] if found else output_text.rpartition("\n")[2][:200], taken

    def _test(self, words: list[str], output: int) -> NoReturn:
        """Tests in a child that has imported others' packages already: imports are a third of most tests' time."""
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(self.folder)
        os.environ["PYTHONPATH"] = str(self.folder)
        sys.path[:] = [str(self.folder), *(place for place in sys.path if Path(place).resolve() != ROOT)]
        for name in [name for name, module in sys.modules.items() if _is_ours(module)]:
            del sys.modules[name]
        os._exit(int(pytest.main(words)))

    def judge(self, mutant: PythonMutant, order: Sequence[str], patience_s: float) -> Verdict:
        verdict = Verdict(str(mutant), mutant.path, mutant.line, mutant.change)
        path = self.folder / mutant.path
        source, times = path.read_text(encoding="utf-8"), path.stat()
        for batch in batched_by(order, BATCHES):
            while batch and verdict.fate == "undecided":
                left = patience_s - verdict.seconds
                path.write_text(mutant.apply(source), encoding="utf-8")
                try:
                    code, by, seconds = self.run(batch, left) if left > 0 else (None, "", 0.0)
                finally:
                    path.write_text(source, encoding="utf-8")
                    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
                verdict.seconds = round(verdict.seconds + seconds, 1)
                if code is None:
                    return verdict
                if code in (0, 5):
                    verdict.tried += len(batch)
                    break
                again, there, _ = self.run([by] if _OWN.search(f"FAILED {by}") else batch[:1], patience_s)
                if again in (0, 5):
                    verdict.fate, verdict.by = "caught", by
                elif _OWN.search(f"FAILED {by}"):
                    self.broken.append(by)
                else:
                    raise RuntimeError(f"the copy's tests do not run: {there}")
        verdict.fate = "survived" if verdict.fate == "undecided" else verdict.fate
        return verdict


def _is_ours(module: object) -> bool:
    """Whether it was imported from the tree that the copy is of, and not from its environment."""
    path = Path(getattr(module, "__file__", None) or "/")
    return path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / ".venv")


def batched_by(order: Sequence[str], sizes: Sequence[int]) -> Iterator[Sequence[str]]:
    """Yields the files in batches of these sizes, and then all that are left."""
    starts = [0, *accumulate(sizes)]
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        yield order[start:end]


def _ended(pid: int, seconds: float) -> tuple[int | None, float]:
    """Waits for the process, and ends it with its children.

    Returns its exit code and its CPU time; no code where it took more, or waited ten times as long.
    """
    until, code, taken = time.monotonic() + 10 * seconds, None, 0.0
    process = psutil.Process(pid)
    while code is None and taken < seconds and time.monotonic() < until:
        with suppress(psutil.NoSuchProcess):  # one that it started has ended meanwhile
            taken = max(taken, tree_cpu_s(process))
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(0.1)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if code is None:
        os.waitpid(pid, 0)
    return code, taken


def sources() -> dict[str, str]:
    files = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}


@dataclass(frozen=True)
class TestMap:
    """How many imports each test file, and its folder's conftest, is away from each of our modules that it reaches."""

    texts: Mapping[str, str]
    distances: Mapping[str, Mapping[str, int]]

    @classmethod
    def read(cls) -> "TestMap":
        imports = {name: _imports(path) for name, path in _modules().items()}
        for name in imports:
            if name.count(".") > 1 and (shared := name.rpartition(".")[0] + ".conftest") in imports:
                imports[name] += [shared] if name.rpartition(".")[2].startswith("test_") else []
        imported = set[str]().union(*imports.values())
        for name in imports.keys() - imported:  # a plug-in, which its package imports by name
            imports.get(name.rpartition(".")[0], []).append(name)
        tests = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "tests").rglob("test_*.py"))}
        distances = {test: _distances(test.removesuffix(".py").replace("/", "."), imports) for test in tests}
        return cls({test: path.read_text(encoding="utf-8") for test, path in tests.items()}, distances)

    def order(self, mutant: PythonMutant) -> list[str]:
        """Returns the test files that reach the changed module, the likeliest for their price first."""
        module = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        reaching = [test for test in self.texts if module in self.distances[test]]
        return sorted(reaching, key=lambda test: (self._rank(test, module, mutant), test))

    def _rank(self, test: str, module: str, mutant: PythonMutant) -> float:
        folder = test.split("/")[1] if test.count("/") > 1 else ""
        away = self.distances[test][module]
        named = bool(mutant.function) and re.search(rf"\b{re.escape(mutant.function)}\b", self.texts[test]) is not None
        stem = module.rpartition(".")[2]
        alike = stem.removesuffix("_routes").rstrip("s") in Path(test).stem
        return COSTS.get(folder, 1) + 2 * away - 3 * named - 4 * alike


def _modules() -> dict[str, Path]:
    """Returns the tests' modules and ours, by the name that they are imported by."""
    found = {}
    for folder in (*PACKAGES, "tests", "fuzz"):
        for path in (ROOT / folder).rglob("*.py"):
            if "node_modules" not in path.parts:
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                found[name] = path
    return found


def _imports(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # a command line imports by name
            names.append(node.value.partition(":")[0])
    return names


def _distances(start: str, imports: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Returns the least number of imports from `start` to each module."""
    found = {start: 0}
    ring = [start]
    while ring:
        ring = [name for at in ring for name in _fresh(at, imports, found)]
    return found


def _fresh(at: str, imports: Mapping[str, Sequence[str]], found: dict[str, int]) -> Iterator[str]:
    for name in imports.get(at, ()):
        if name in imports and name not in found:
            found[name] = found[at] + 1
            yield name


def report(verdicts: Sequence[Verdict], lane: str, seed: int) -> dict[str, Any]:
    """Returns the share of faults that the lane caught; undecided ones count as not caught."""
    caught = sum(verdict.fate == "caught" for verdict in verdicts)
    decided = sum(verdict.fate != "undecided" for verdict in verdicts)
    return {
        "name": f"python.mutation_sample.{lane}",
        "value": round(caught / len(verdicts), 4) if verdicts else 0.0,
        "unit": "share",
        "seed": seed,
        "mutants": len(verdicts),
        "caught": caught,
        "survived": decided - caught,
        "undecided": len(verdicts) - decided,
        "verdicts": [asdict(verdict) for verdict in verdicts],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lane", choices=LANES, default="test")
    parser.add_argument("--mutants", type=int, default=50)
    parser.add_argument("--seed", type=int, default=25)
    parser.add_argument("--patience", type=float, default=300.0, help="a processor's seconds for each fault")
    parser.add_argument("--only", default="", help="faults of files whose path begins so")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    known = json.loads(chosen.json.read_text())["verdicts"] if chosen.json and chosen.json.exists() else []
    done = {tuple(verdict["change"]): Verdict(**verdict) for verdict in known}
    mutants = sample(sources(), chosen.mutants, chosen.seed)
    tests = TestMap.read()
    for name in PRELOADED:
        import_module(name)
    with TemporaryDirectory() as folder:
        copy = Copy.at(Path(folder) / "tree", LANES[chosen.lane])
        for mutant in mutants:
            before = done.get(mutant.change)
            if (before is None or before.fate != "caught") and mutant.path.startswith(chosen.only):
                verdict = done[mutant.change] = copy.judge(mutant, tests.order(mutant), chosen.patience)
                print(f"{verdict.fate} in {verdict.seconds:.0f} s: {mutant} {verdict.by}", flush=True)
            summary = report([done[each.change] for each in mutants if each.change in done], chosen.lane, chosen.seed)
            if chosen.json:
                chosen.json.write_text(json.dumps(summary, indent=1) + "\n")
    print({name: value for name, value in summary.items() if name != "verdicts"})


if __name__ == "__main__":
    main()
