"""The changes of `make mutants-sample`, and the code that it leaves alone."""

import ast

from mutation.python_mutants import mutants_of, sample
from mutation.python_sample import TestMap, Verdict, batched_by, report

SOURCE = '''
"""A text of 1 line."""

from typing import Annotated

PATIENCE_S = 5
MOST: Annotated[int, "at most 9"] = 1 << 3
TABLE: Annotated[dict[str, int], "of 4"] = {"a": 3}


@cached(maxsize=1)
def choose(a: Literal[7], b, log):
    """Returns 2."""
    log.info("there are 4", number=4)
    if not a or b < 2:
        raise ValueError(f"{a + 1} is too few")
    check(a, "é")
    return "é" if a in b else a + b
'''
EXPECTED = [
    ("", "3", "(4)"),
    ("choose", "not a or b < 2", "(not (not a or b < 2))"),
    ("choose", "not a or b < 2", "(not a and b < 2)"),
    ("choose", "not a", "(a)"),
    ("choose", "b < 2", "(b <= 2)"),
    ("choose", "2", "(3)"),
    ("choose", 'raise ValueError(f"{a + 1} is too few")', "pass"),
    ("choose", 'check(a, "é")', "pass"),
    ("choose", '"é" if a in b else a + b', "(a + b if a in b else 'é')"),
    ("choose", "a in b", "(a not in b)"),
    ("choose", "a + b", "(a - b)"),
]


def test_code_is_changed_and_no_text_annotation_decorator_log_wait_or_named_number() -> None:
    found = list(mutants_of("a.py", SOURCE))
    assert [(each.function, each.before, each.after) for each in found] == EXPECTED
    assert SOURCE.splitlines()[found[-1].line - 1].strip().startswith("return")


def test_each_change_is_python_and_another_program() -> None:
    programs = {ast.dump(ast.parse(each.apply(SOURCE))) for each in mutants_of("a.py", SOURCE)}
    assert len(programs) == len(EXPECTED)
    assert ast.dump(ast.parse(SOURCE)) not in programs


def test_a_sample_stays_while_other_code_changes() -> None:
    sources = {"a.py": SOURCE, "b.py": SOURCE.replace("choose", "other")}
    chosen = sample(sources, 8, seed=1)
    assert len(set(chosen)) == 8
    assert chosen == sample(sources, 8, seed=1) != sample(sources, 8, seed=2)
    later = sample(sources | {"b.py": "# a new line\n" + sources["b.py"]}, 8, seed=1)
    assert len({each.change for each in later} & {each.change for each in chosen}) >= 7
    moved = sample({"a.py": SOURCE, "deeper/b.py": sources["b.py"]}, 8, seed=1)
    assert [each.change for each in moved] == [each.change for each in chosen]


def test_undecided_mutants_count_as_not_caught() -> None:
    fates = [
        Verdict(fate, "a.py", 1, ("a.py", "", fate, ""), fate) for fate in ("caught", "caught", "survived", "undecided")
    ]
    told = report(fates, "test", 1)
    assert (told["value"], told["caught"], told["survived"], told["undecided"]) == (0.5, 2, 1, 1)
    assert report([], "test", 1)["value"] == 0.0


def test_files_run_in_few_calls_and_each_once() -> None:
    files = [str(number) for number in range(9)]
    assert [list(batch) for batch in batched_by(files, (2, 3))] == [files[:2], files[2:5], files[5:]]
    assert [list(batch) for batch in batched_by(files[:1], (2, 3))] == [files[:1], [], []]


def test_files_that_reach_the_module_run_the_cheap_near_and_alike_first() -> None:
    distances = {
        "tests/e2e/test_near.py": {"requester.rules": 1},
        "tests/market/test_far.py": {"requester.rules": 3},
        "tests/market/test_strange.py": {},
        "tests/requester/test_near.py": {"requester.rules": 1},
        "tests/requester/test_rules.py": {"requester.rules": 1},
    }
    mutant = next(mutants_of("requester/rules.py", "def draw(a): return a + 1"))
    texts = dict.fromkeys(distances, "import requester")
    expected = ["requester/test_rules", "requester/test_near", "market/test_far", "e2e/test_near"]
    assert TestMap(texts, distances).order(mutant) == [f"tests/{name}.py" for name in expected]
    texts["tests/market/test_far.py"] = "draw(1)"
    assert TestMap(texts, distances).order(mutant)[:2] == ["tests/requester/test_rules.py", "tests/market/test_far.py"]
