"""A task over a worker's limits is declined before anything large is downloaded for it."""

from dataclasses import replace
from typing import Any

import pytest
from blake3 import blake3

from gradmarket.market.errors import Refused
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.terms import Amount, Digest
from gradmarket.network import DownloadRefused
from gradmarket.runner import Runner
from graphdoc.figures import Bound
from tests.handmade import encoded, node, value, with_nodes
from tests.worker.conftest import SPEC, MakeExecutor, offer, published_as
from worker.markets.leasing import compute_rest
from worker.protocol.policy import WorkLimits

LIMITS = WorkLimits(frozenset(), Amount(1), 1, 1, 60.0, max_flops=1e7, max_memory=2**30)


def heavier(publication: Publication, **step: Any) -> Publication:
    changed = publication.spec.model_dump(mode="json") | {"step": {"rows": 8, **step}}
    return publication.model_copy(update={"spec": JobSpec.model_validate(changed)})


TOO_LITTLE = {
    "operations": replace(LIMITS, max_flops=10.0),
    "memory": replace(LIMITS, max_memory=100),
    "bytes": replace(LIMITS, max_disk=100),
}


@pytest.mark.parametrize("what", TOO_LITTLE)
def test_only_document_and_manifest_were_fetched(
    make_executor: MakeExecutor, publication: Publication, fetched_digests: list[Digest], what: str
) -> None:
    executor = make_executor(TOO_LITTLE[what])
    for _ in range(2):
        with pytest.raises(Refused, match=what):
            executor.work(publication, offer(publication))
        executor.expect(publication, offer(publication))
    assert set(fetched_digests) <= {publication.document, publication.manifest}


def test_a_task_within_the_limits_is_fetched_and_computed(
    make_executor: MakeExecutor, publication: Publication, fetched_digests: list[Digest]
) -> None:
    payload, _ = make_executor(LIMITS).work(publication, offer(publication))
    assert payload
    assert fetched_digests[:2] == [publication.document, publication.manifest]
    assert publication.parameters in fetched_digests


def test_a_heavier_step_of_the_document_that_is_loaded_is_declined(
    make_executor: MakeExecutor, publication: Publication
) -> None:
    executor = make_executor(LIMITS)
    assert executor.work(publication, offer(publication))
    inner = {"kind": "local", "steps": 10_000, "rows": 32, "optimizer": {"lr": 0.1}}
    for wide in (heavier(publication, rows=1_000_000, microbatch=32), heavier(publication, **inner)):
        with pytest.raises(Refused, match="operations"):
            executor.work(wide, offer(wide))
    assert executor.work(publication, offer(publication))


def test_the_cost_of_orthogonal_steps_counts_against_the_limits(
    make_executor: MakeExecutor, publication: Publication
) -> None:
    """The document is the same."""
    steps = {
        name: heavier(publication, kind="local", steps=2, rows=1, optimizer={"name": name, "lr": 0.1})
        for name in ("adamw", "muon")
    }
    plain = make_executor(LIMITS).effort(steps["adamw"]).flops
    allowing = make_executor(replace(LIMITS, max_flops=float(plain)))
    assert allowing.work(steps["adamw"], offer(steps["adamw"]))
    with pytest.raises(Refused, match="operations"):
        allowing.work(steps["muon"], offer(steps["muon"]))
    assert make_executor(LIMITS).work(steps["muon"], offer(steps["muon"]))


@pytest.mark.parametrize("codec", ["int8", "two_bit"])
def test_an_answer_leaves_a_card_packed(
    make_executor: MakeExecutor, blobs: dict[Digest, bytes], codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor stands in for the card, without the code that would give it the answer's numbers."""
    packed = published_as(blobs, **{**SPEC, "uplink": {"codec": codec}})
    card = make_executor(replace(LIMITS, device="cuda"))
    monkeypatch.setattr(card, "_compute", None)
    payload, again = (card.work(packed, offer(packed))[0] for _ in range(2))
    assert payload == again == make_executor(LIMITS).work(packed, offer(packed))[0]


def test_on_a_card_only_what_has_one_answer_there_is_computed(
    make_executor: MakeExecutor, publication: Publication, blobs: dict[Digest, bytes], fetched_digests: list[Digest]
) -> None:
    """The limits name the worker's device; here a processor stands in for the card."""
    card = make_executor(replace(LIMITS, device="cuda"))
    assert card.work(publication, offer(publication))
    fetched_digests.clear()
    padding = encoded(with_nodes(node("pad.default", [value(0), [1, 1], "reflect", None], 3)))
    other = publication.model_copy(update={"document": Digest("blake3:" + blake3(padding).hexdigest())})
    blobs[other.document] = padding
    with pytest.raises(
        Refused, match=r"pad.default: torch has no deterministic CUDA kernel for torch.nn.ReflectionPad"
    ):
        card.work(other, offer(other))
    assert fetched_digests == [other.document]
    with pytest.raises(Refused, match="arrays are missing or unexpected"):
        make_executor(LIMITS).work(
            other, offer(other)
        )  # on a processor it comes to the parameters, which are another's


def test_a_task_s_cost_is_measured_without_private_parameters(
    make_executor: MakeExecutor, publication: Publication, blobs: dict[Digest, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it holds a task, the market gives it the parameters, and it computes on those."""
    executor = make_executor(LIMITS)
    with monkeypatch.context() as patch:
        patch.delitem(blobs, publication.parameters)
        assert executor.effort(publication).seconds > 0
        with pytest.raises(DownloadRefused, match="403"):
            executor.work(publication, offer(publication))
    payload, _ = executor.work(publication, offer(publication))
    assert payload == make_executor(LIMITS).work(publication, offer(publication))[0]


def test_a_job_is_judged_once_by_a_worker_that_goes_to_others_between(
    make_executor: MakeExecutor, publication: Publication, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, bound = list[tuple[int, ...]](), runner.bound

    def count(*rows: int, by_row: bool = False) -> Bound:
        asked.append(rows)
        return bound(*rows, by_row=by_row)

    monkeypatch.setattr(runner, "bound", count)
    executor, other = make_executor(LIMITS), publication.model_copy(update={"job": "fedcba9876543210"})
    first = [executor.work(one, offer(one))[0] for one in (publication, other)]
    assert [executor.work(one, offer(one))[0] for one in (publication, other)] == first
    assert asked == [(8,), (8,)]
    with pytest.raises(Refused, match="operations"):
        executor.work(wide := heavier(publication, rows=1_000_000, microbatch=32), offer(wide))
    assert executor.work(other, offer(other))[0] == first[1]


@pytest.mark.parametrize(("declined", "seconds"), [(1, 2.0), (5, 32.0), (6, 60.0), (5000, 60.0)])
def test_a_market_that_offers_nothing_fit_for_a_day_ends_no_worker(declined: int, seconds: float) -> None:
    assert compute_rest(declined) == seconds
