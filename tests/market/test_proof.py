"""A task's evidence: an honest market's publication is proven, and no piece of it can be changed."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gradmarket.market.features.verify import list_case_faults
from gradmarket.market.job import JobSpec
from gradmarket.market.rules.proof import Fault
from gradmarket.market.rules.verifiers import exact
from gradmarket.market.rules.voting import Another, Inconclusive, Quorum, judge_ballots
from gradmarket.market.terms import Digest
from gradmarket.market.wire.evidence import PublishedBallot, PublishedEvidence
from tests import handmade_evidence as made

HONEST: Final = {
    "one wave": (made.JOB, made.outvoted()),
    "two waves": (made.JOB, made.in_two_waves()),
    "sketches": (made.TOLERANT, made.by_sketches()),
}
RAW: Final = {name: shown.model_dump(mode="json") for name, (_, shown) in HONEST.items()}
LABELS: Final = {"id", "state"}
"""Nobody signs them: they only label the published rows."""
Path = tuple[Any, ...]
Raw = dict[str, Any]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the paths of all that is signed, or follows from signatures."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, name))
    elif value is not None and not LABELS & set(path) and "allowed" not in path:
        yield path


PATHS: Final = {name: sorted(leaves(raw), key=str) for name, raw in RAW.items()}
UNUSED: Final = {"determinism_class"}
"""Where roots are compared, nothing depends on it."""


def read_path(value: Any, path: Path) -> Any:
    for name in path:
        value = value[name]
    return value


def put(raw: Raw, path: Path, value: Any) -> Raw:
    """A copy with one value changed."""
    copy = deepcopy(raw)
    read_path(copy, path[:-1])[path[-1]] = value
    return copy


def proven(name: str, raw: Raw) -> bool:
    """Whether it is taken for evidence, and proves its verdicts."""
    try:
        shown = PublishedEvidence.model_validate(raw)
    except ValidationError:
        return False
    return list_case_faults(made.case(HONEST[name][0], shown)) == []


@pytest.mark.parametrize("name", HONEST)
def test_honest_evidence_is_proven(name: str) -> None:
    spec, shown = HONEST[name]
    assert [str(finding) for finding in list_case_faults(made.case(spec, shown))] == []


@given(st.lists(st.sampled_from([made.TRUE, made.FALSE, made.THIRD]), min_size=5, max_size=5))
def test_any_verdict_by_the_rules_has_faultless_evidence(roots: list[Digest]) -> None:
    """Waves follow by the job's plan, until a quorum decides."""
    cast, more, number, judgement = list[PublishedBallot](), made.JOB.plan().first_wave, 0, None
    while not isinstance(judgement, Quorum | Inconclusive):
        first = len(cast)
        cast += [made.ballot(made.JOB, place, roots[place], number) for place in range(first, first + more)]
        groups = exact.groups({one.id: one.root for one in cast})
        judgement, number = judge_ballots(groups, len(cast), made.JOB.plan()), number + 1
        more = judgement.wave if isinstance(judgement, Another) else 0
    if isinstance(judgement, Quorum):
        shown = made.evidence(made.JOB, cast, [one.id in judgement.agreeing for one in cast])
        assert list_case_faults(made.case(made.JOB, shown)) == []


def flipped(text: str, place: int) -> str:
    """A text with one letter changed, within its hexadecimal digits."""
    head = len(text) - len(text.removeprefix("0x").removeprefix("blake3:"))
    at = head + place % (len(text) - head)
    return text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]


@given(data=st.data(), name=st.sampled_from(sorted(HONEST)))
def test_a_mutated_piece_of_evidence_is_never_proven(data: st.DataObject, name: str) -> None:
    path = data.draw(st.sampled_from([path for path in PATHS[name] if name == "sketches" or path[-1] not in UNUSED]))
    before = read_path(RAW[name], path)
    if isinstance(before, str):
        after = flipped(before, data.draw(st.integers(0, 1000)))
    else:
        after = before + data.draw(st.sampled_from([-1, 1, 2**70]) if isinstance(before, int) else st.just(0.25))
    after = data.draw(st.sampled_from([after, None]))
    assert not proven(name, put(RAW[name], path, after)), path


@given(data=st.data(), name=st.sampled_from(sorted(HONEST)))
def test_no_value_of_one_ballot_or_wave_stands_for_another_s(data: st.DataObject, name: str) -> None:
    kind = data.draw(st.sampled_from(["replicas", "waves"]))
    rows = RAW[name][kind]
    to, source = data.draw(st.tuples(st.integers(0, len(rows) - 1), st.integers(0, len(rows) - 1)))
    field = data.draw(st.sampled_from(sorted(rows[0].keys() - LABELS - UNUSED)))
    if rows[to][field] != rows[source][field]:
        assert not proven(name, put(RAW[name], (kind, to, field), rows[source][field])), (to, source, field)


@given(data=st.data(), name=st.sampled_from(sorted(HONEST)))
def test_nothing_is_left_out_or_shown_twice(data: st.DataObject, name: str) -> None:
    kind = data.draw(st.sampled_from(["replicas", "waves"]))
    rows = RAW[name][kind]
    place = data.draw(st.integers(0, len(rows) - 1))
    assert not proven(name, {**RAW[name], kind: rows[:place] + rows[place + 1 :]})
    if kind == "replicas":
        assert not proven(name, {**RAW[name], kind: [*rows, rows[place]]})


def on_ballot(number: int, **changes: Any) -> Callable[[Raw], Raw]:
    return lambda raw: put(raw, ("replicas", number), raw["replicas"][number] | changes)


def unsigned_rejection(raw: Raw) -> Raw:
    hidden = {"outcome": None, "verdict_root": None, "verdict_signature": None}
    return on_ballot(2, **hidden)(raw)


def without_quorum(spec: JobSpec) -> Raw:
    cast = [made.ballot(spec, number, root) for number, root in enumerate((made.TRUE, made.FALSE, made.THIRD))]
    return made.evidence(spec, cast, (True, False, False)).model_dump(mode="json")


def test_of_two_ballots_of_one_id_the_last_is_in_the_groups() -> None:
    shown = PublishedEvidence.model_validate(on_ballot(2, id="r-0", salt=None)(RAW["one wave"]))
    assert made.case(made.JOB, shown).groups == [frozenset({"r-1"})]


ENDLESS: Final = {"quorum": 2**60, "maximum": 2**60}
LIES: Final[list[tuple[str, Callable[[Raw], Raw], Fault]]] = [
    ("unsigned rejection", unsigned_rejection, Fault.REJECTED_UNPROVEN),
    ("accepted, and said to be rejected", on_ballot(0, state="rejected"), Fault.CONTRADICTION),
    ("promise without a signature", on_ballot(0, outcome=None, verdict_signature=None), Fault.UNSIGNED_VERDICT),
    ("answer hidden", on_ballot(2, salt=None), Fault.BROKEN_COMMITMENT),
    ("replica twice", on_ballot(2, id="r-0"), Fault.TWO_BALLOTS),
    ("paid without a quorum", lambda _: without_quorum(made.JOB), Fault.PAID_WITHOUT_AUDIT),
    (
        "promised without a quorum",
        lambda _: on_ballot(0, state="agree")(without_quorum(made.JOB)),
        Fault.AGAINST_QUORUM,
    ),
    ("no quorum for a rejection", lambda _: without_quorum(made.JOB), Fault.REJECTED_UNPROVEN),
    ("decided without a root", lambda raw: raw | {"root": None}, Fault.NO_TASK_ROOT),
    ("over without a plan", lambda raw: raw | {"plan": None}, Fault.NO_PLAN),
    ("a plan of one vote", lambda raw: raw | {"plan": raw["plan"] | {"quorum": 1}}, Fault.OTHER_PLAN),
    (
        "a plan without end",
        lambda raw: raw | {"plan": raw["plan"] | ENDLESS},
        Fault.OTHER_PLAN,
    ),
    ("nothing shown", lambda raw: raw | {"replicas": []}, Fault.NOT_SHOWN),
]


@pytest.mark.parametrize(("lie", "fault"), [case[1:] for case in LIES], ids=[case[0] for case in LIES])
def test_each_lie_has_its_name(lie: Callable[[Raw], Raw], fault: Fault) -> None:
    shown = PublishedEvidence.model_validate(lie(RAW["one wave"]))
    assert fault in {finding.fault for finding in list_case_faults(made.case(made.JOB, shown))}


@pytest.mark.parametrize("number", [-1, 2**256])
def test_an_offer_that_cannot_be_signed_is_no_evidence(number: int) -> None:
    with pytest.raises(ValidationError, match="cannot be signed"):
        PublishedEvidence.model_validate(put(RAW["one wave"], ("offer", "round"), number))
