"""Why a worker gets no lease and a job too few workers, in words: a test a reason."""

from dataclasses import replace

import pytest

from gradmarket.market.features.explanations import describe_shortage, in_words
from gradmarket.market.rules.assignment import Candidate, Opening, Reason
from gradmarket.market.terms import JobId, Units
from tests.market.test_assignment import HONEST, OPENING, address, candidate

CLASS = "cpu/x86_64-amd/avx2/torch-2.13.0/threads-{}"
ONE, TWO = CLASS.format(1), CLASS.format(2)
HERE = replace(OPENING, separation=("operator",))


@pytest.mark.parametrize(
    ("worker", "opening", "text"),
    [
        (HONEST, HERE, None),
        (replace(HONEST, jobs=frozenset({JobId("other")})), HERE, "it works for other jobs alone (--job)"),
        (replace(HONEST, least_price=Units(11)), HERE, "it asks for a higher price than the job pays"),
        (
            replace(HONEST, determinism_class=TWO),
            replace(HERE, determinism_class=ONE),
            "it runs 2 threads, and the job's workers 1 (--threads)",
        ),
        (replace(HONEST, determinism_class="gpu"), HERE, Reason.OTHER_CLASS),
        (replace(HONEST, determinism_class=""), HERE, "it has not named its determinism class"),
        (replace(HONEST, suspended=True), HERE, Reason.SUSPENDED),
        (replace(HONEST, barred=True), HERE, Reason.BARRED),
        (replace(HONEST, rests=True), HERE, Reason.RESTS),
        (replace(HONEST, takes_part=False), HERE, Reason.NO_HOLDER),
        (replace(HONEST, uncommitted=Units(9)), HERE, Reason.NO_RESERVATION),
        (replace(HONEST, capacity=0), HERE, Reason.AT_CAPACITY),
        (HONEST, replace(HERE, tried=frozenset({address(1)})), Reason.ALREADY_TRIED),
        (
            HONEST,
            replace(HERE, parties=(candidate(2, payout=1).party,)),
            "another replica is of the same party: it has the payout address of another worker",
        ),
        (
            candidate(1, network="10.0.0.0/24"),
            replace(HERE, separation=("network",), parties=(candidate(2, network="10.0.0.0/24").party,)),
            "another replica is of the same party: it is in the network of another worker",
        ),
    ],
)
def test_each_reason_has_its_words(worker: Candidate, opening: Opening, text: str | None) -> None:
    assert in_words(worker, opening) == text


@pytest.mark.parametrize(
    ("workers", "text"),
    [
        ([], "no worker is here"),
        ([candidate(n) for n in range(3)], ""),
        (
            [replace(candidate(n), least_price=Units(11)) for n in range(3)],
            "3 of 3: it asks for a higher price than the job pays",
        ),
        (
            [candidate(1), *(replace(candidate(n), jobs=frozenset({JobId("other")})) for n in (2, 3))],
            "2 of 3: it works for other jobs alone (--job)",
        ),
        (
            [candidate(n, payout=9) for n in range(3)],
            "2 of 3: it has the payout address of another worker",
        ),
        (
            [candidate(1), replace(candidate(2), least_price=Units(11)), replace(candidate(3), barred=True)],
            "1 of 3: it asks for a higher price than the job pays; 1 of 3: an audit of its work, or of its operator's "
            "work, failed",
        ),
        ([replace(candidate(n), uncommitted=Units(0), capacity=0) for n in range(3)], ""),
    ],
)
def test_a_shortage_names_what_stands_against_those_here(workers: list[Candidate], text: str) -> None:
    assert describe_shortage(workers, HERE, frozenset()) == text


def test_a_shortage_of_one_thread_count_names_it_and_a_calibrated_class_is_none() -> None:
    workers = [replace(candidate(n), determinism_class=TWO) for n in range(2)]
    opening = replace(HERE, determinism_class=ONE)
    assert (
        describe_shortage(workers, opening, frozenset())
        == "2 of 2: it runs 2 threads, and the job's workers 1 (--threads)"
    )
    mixable = frozenset({(ONE, TWO)})
    assert describe_shortage(workers, replace(opening, mixable=mixable), mixable) == ""
