"""The size and shape of the source: lines by package, imports from kernel to features, names, helpers, words of docs.

A file in a `features` folder is a feature, and everything else is kernel, features without a folder included. In
the market, plug-ins other than the defaults are not counted: each is one deletable file.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.figure import Figure
from requester.features import FEATURES
from tests.source_tree import PACKAGES, ROOT, Module, load_modules, ours, within
from tests.test_layers import FEATURE_ROOTS, TOOLS
from worker.features import FEATURES as WORKER_FEATURES

PREFIX = "house."

KERNEL_LINES: Final = {"requester": "<= 15500", "worker": "<= 5000", "gradmarket/market": "<= 9000"}
"""Folder -> the most lines of its kernel."""
PLUGINS: Final = {
    "gradmarket/market/gradient/aggregators": "mean",
    "gradmarket/market/gradient/codecs": "fp32",
    "gradmarket/market/gradient/optimizers": "sgd",
    "gradmarket/market/arguments": "",
    "gradmarket/market/rules/pricing": "fixed",
    "gradmarket/market/rules/replication": "fixed",
    "gradmarket/market/rules/verifiers": "exact",
}
"""Folder of plug-ins (CONTRIBUTING.md) -> the default; no architecture is one."""
ROOTS: Final = set(FEATURE_ROOTS)
"""The registry, and the composition roots that import it."""
OUTSIDE: Final = tuple(f"gradmarket.{tool}" for tool in TOOLS)
"""Neither kernel nor feature."""
SHORT: Final = 40
NO_WORDS: Final = re.compile(r"(?s:<!--.*?-->)|(?s:^```.*?^```)|`[^`\s]+::[^`\s]+`", re.MULTILINE)
FEATURE: Final = re.compile(r"\.features\.(\w+)")


def measure() -> Iterator[Figure]:
    for folder, most in KERNEL_LINES.items():
        lines = sum(map(count_lines, filter(is_kernel, sources(folder))))
        yield Figure(f"{PREFIX}kernel_lines.{folder.rpartition('/')[2]}", lines, "lines", target=most)
    installed = [path for package in PACKAGES for path in sources(package)]
    yield Figure(f"{PREFIX}feature_lines", sum(count_lines(path) for path in installed if is_feature(path)), "lines")
    modules = list(load_modules().values())
    yield from _imports(modules)
    yield from _shape(modules, installed)
    yield Figure(f"{PREFIX}installed_lines", sum(map(count_lines, installed)), "lines", target="<= 55000")
    yield Figure(f"{PREFIX}test_lines", sum(map(count_lines, sources("tests"))), "lines", target="<= 46000")
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    words = sum(count_words(page.read_text()) for page in pages)
    yield Figure(f"{PREFIX}docs_words", words, "words", target="<= 27000", note="of README and docs/")


def count_words(text: str) -> int:
    """Counts words with a letter or a digit, except in comments, code between fences and names of tests."""
    return sum(1 for word in NO_WORDS.sub(" ", text).split() if re.search(r"\w", word))


def _imports(modules: list[Module]) -> Iterator[Figure]:
    """Yields imports of features by the kernel, and by features that do not declare that they need them."""
    needs: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for name, needed in [(one.name, one.needs) for one in FEATURES] + [
        (one.name, one.needs) for one in WORKER_FEATURES
    ]:
        needs[name] += needed
    from_kernel = undeclared = 0
    for module in modules:
        own = feature_of(module.name)
        targets = [other for target in ours(module) if (other := feature_of(target)) not in (None, own)]
        if own is not None:
            undeclared += sum(other not in needs[own] for other in targets)
        elif module.name not in ROOTS and not any(within(module.name, tool) for tool in OUTSIDE):
            from_kernel += len(targets)
    yield Figure(f"{PREFIX}kernel_to_feature", from_kernel, "imports", target="<= 0")
    yield Figure(f"{PREFIX}feature_to_feature_undeclared", undeclared, "imports", target="<= 0")


def _shape(modules: list[Module], installed: list[Path]) -> Iterator[Figure]:
    names = [name for module in modules for name in function_names(module.tree)]
    words = sum("_" not in name.strip("_") for name in names)
    uses = [count for module in modules for count in helper_calls(module.tree)]
    telling = [path for path in installed if path.name != "__init__.py" or "def " in path.read_text()]
    short, note = sum(count_lines(path) <= SHORT for path in telling), f"of {len(telling)} that are more than a package"
    yield Figure(f"{PREFIX}short_modules", short, "modules", target="<= 60", note=note)
    share = 100 * words / len(names)
    yield Figure(f"{PREFIX}one_word_functions", round(share, 1), "%", target="<= 35", note=f"of {len(names)}")
    once = 100 * uses.count(1) / len(uses)
    yield Figure(f"{PREFIX}helpers_called_once", round(once, 1), "%", target="<= 30", note=f"of {len(uses)}")


def sources(folder: str) -> Iterator[Path]:
    return (path for path in sorted((ROOT / folder).rglob("*.py")) if "node_modules" not in path.parts)


def count_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def is_feature(path: Path) -> bool:
    return "features" in path.relative_to(ROOT).parts[:-1]


def is_kernel(path: Path) -> bool:
    default = PLUGINS.get(str(path.parent.relative_to(ROOT)))
    return not is_feature(path) and (default is None or path.stem in (default, "__init__"))


def feature_of(module: str) -> str | None:
    found = FEATURE.search(module)
    return found[1] if found else None


def function_names(tree: ast.Module) -> list[str]:
    """Returns the names of all functions and methods but those that Python prescribes."""
    found = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [name for name in found if not (name.startswith("__") and name.endswith("__"))]


def helper_calls(tree: ast.Module) -> list[int]:
    """Returns how often each private function of a module's top is called there; 0 for one that is given to others."""
    named = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    callees = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = Counter(node.id for node in callees if isinstance(node, ast.Name))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [called[name] if called[name] == named[name] else 0 for name in functions if name.startswith("_")]
