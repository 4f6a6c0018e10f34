"""The faults that mutation testing puts into the contract, and the score it gives."""

from mutation.mutants import Mutant, mutants_of, sample
from mutation.score import MutantFate, name, report, sources

SOURCE = """\
import {A} from "./A.sol";
    /// @dev a < b
    function f(uint256 a) external {
        if (a < 5) revert TooSmall("a < b");
        total += a;
    }
"""


def _afters(line: int) -> set[str]:
    return {mutant.after.strip() for mutant in mutants_of("f.sol", SOURCE) if mutant.line == line}


def test_only_code_is_mutated() -> None:
    assert {mutant.line for mutant in mutants_of("f.sol", SOURCE)} == {4, 5}


def test_a_guard_is_turned_dropped_and_decided() -> None:
    assert _afters(4) == {
        'if (a <= 5) revert TooSmall("a < b");',
        'if (a > 5) revert TooSmall("a < b");',
        'if (a < 6) revert TooSmall("a < b");',
        'if (true) revert TooSmall("a < b");',
        'if (false) revert TooSmall("a < b");',
        "",
    }


def test_a_sum_is_turned_and_dropped() -> None:
    assert _afters(5) == {"total -= a;", "total = a;", ""}


def test_a_mutant_changes_its_line_alone() -> None:
    for mutant in mutants_of("f.sol", SOURCE):
        before, after = SOURCE.splitlines(), mutant.apply(SOURCE).splitlines()
        assert [place for place in range(len(before)) if before[place] != after[place]] == [mutant.line - 1]


def test_the_seed_decides_the_sample() -> None:
    found = sources()
    assert sample(found, 1) == sample(found, 1)
    assert sample(found, 1) != sample(found, 2)
    assert sorted(map(str, sample(found, 1))) == sorted(map(str, sample(found, 2)))
    assert len(found) >= 9


def test_the_score_leaves_out_what_is_explained_or_does_not_compile() -> None:
    killed, lost, harmless, broken = (Mutant("src/f.sol", line, "a", f"b{line}") for line in range(4))
    fates = [
        (killed, MutantFate.KILLED),
        (lost, MutantFate.SURVIVED),
        (harmless, MutantFate.SURVIVED),
        (broken, MutantFate.INVALID),
    ]
    found = report(fates, {name(harmless): "changes nothing"})
    assert found["value"] == 0.5
    assert found["raw"] == round(1 / 3, 4)
    assert found["mutants"] == 3
    assert found["unexplained"] == [str(lost)]
