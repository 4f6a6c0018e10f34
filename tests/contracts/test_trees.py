"""Each function's .tree names its branches; each leaf has a test of that name.

A condition with one leaf gives `test_RevertWhen_<Condition>` when the leaf says it reverts, and `test_When<Condition>`
otherwise; a condition with several leaves, or none above it, gives `test_<Leaf>` for each.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from contracts.toolchain import HERE

TREES = sorted((HERE / "test" / "trees").glob("*.tree"))


def _camel(words: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in re.findall(r"\w+", words))


def _leaves(tree: Path) -> Iterator[tuple[str, str]]:
    """(nearest condition or "", leaf), in order."""
    condition = {0: ""}
    for line in tree.read_text(encoding="utf-8").splitlines()[1:]:
        branch, words = re.split(r"(?<=── )", line, maxsplit=1)
        depth = len(branch) // 4
        if words.startswith("When "):
            condition[depth] = words.removeprefix("When ")
        else:
            yield condition[depth - 1], words.removeprefix("It should ")


def _expected(tree: Path) -> Iterator[str]:
    for condition, group in groupby(_leaves(tree), key=lambda found: found[0]):
        leaves = [leaf for _, leaf in group]
        if not condition or len(leaves) > 1:
            yield from (f"test_{_camel(leaf)}" for leaf in leaves)
        elif leaves[0].startswith("revert"):
            yield f"test_RevertWhen_{_camel(condition)}"
        else:
            yield f"test_When{_camel(condition)}"


def _written(tree: Path) -> list[str]:
    test = HERE / "test" / "unit" / f"{tree.stem[0].upper()}{tree.stem[1:]}.t.sol"
    return re.findall(r"function (test_\w+)", test.read_text(encoding="utf-8"))


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.stem)
def test_each_leaf_has_one_test(tree: Path) -> None:
    assert _written(tree) == list(_expected(tree))


def test_each_unit_test_has_a_tree() -> None:
    units = {path.name.removesuffix(".t.sol").lower() for path in (HERE / "test" / "unit").glob("*.t.sol")}
    assert units == {tree.stem.lower() for tree in TREES}
