"""The log of a job: every record is a leaf, leaves stay, and a service that shows two histories is found."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Event
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, text

from gradmarket.market.features.log import job_log
from gradmarket.market.features.log.job_log import ConsistencyProof, LeafProof
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf, is_included
from gradmarket.market.messages import LogHead
from gradmarket.market.signing import digest_struct, sign_digest
from gradmarket.market.terms import Hash
from gradmarket.market.wire.log_proofs import LeafHashes, LeafKind, PublishedHead
from requester.app import create_app
from requester.context import Context
from requester.features.log.leaf_rows import LogLeaf, append_leaves
from requester.moves.task_attempts import build_task
from requester.store.tables import Earned, Job, Replica, Round, Task, Wave
from tests.databases import BOTH
from tests.lanes import FULL, leave_to_full
from tests.patience import PATIENCE_S, wait_for, wait_until
from tests.requester.market_fixture import MarketFixture

NewMarket = Callable[..., MarketFixture]


@pytest.fixture
def market(new_market: NewMarket) -> MarketFixture:
    return new_market(rounds=2)


@pytest.fixture
def api(market: MarketFixture) -> Iterator[TestClient]:
    with TestClient(create_app(market.context, nullcontext)) as client:
        yield client


def write_log(market: MarketFixture) -> None:
    with market.context.begin() as work:
        append_leaves(work, work.get_one(Job, market.job))


def get(api: TestClient, market: MarketFixture, path: str = "", **asked: Any) -> Any:
    answer = api.get(f"/v1/jobs/{market.job}/log{path}", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def head_of(api: TestClient, market: MarketFixture) -> tuple[LogHead, bytes]:
    shown = PublishedHead.model_validate(get(api, market))
    return shown.struct(), shown.signature


def leaves_of(api: TestClient, market: MarketFixture) -> list[Hash]:
    return list(LeafHashes.model_validate(get(api, market, "/leaves")).hashes)


@FULL
def test_every_record_of_a_job_is_one_leaf(market: MarketFixture, api: TestClient) -> None:
    workers = [market.worker() for _ in range(3)]
    market.play(*workers)
    write_log(market)
    write_log(market)
    counts = {kind.value: len(market.all(LogLeaf, LogLeaf.kind == kind.value)) for kind in LeafKind}
    sealed = len(market.all(Replica, Replica.sealed.is_not(None)))
    assert counts == {
        "offer": len(market.all(Task)), "attempt": len(market.all(Task)), "wave": len(market.all(Wave)),
        "commitment": sealed, "reveal": sealed,
        "verdict": sealed, "round": len(market.all(Round)), "payment": len(market.all(Earned)), "restart": 0,
        "hearing": 0, "answers": 0, "ruling": 0, "seal": 0,
    }  # fmt: skip
    head, _ = head_of(api, market)
    assert head.size == sum(counts.values()) == len(leaves_of(api, market))
    assert GrowingTree(leaves_of(api, market)).compute_root() == head.root


def test_a_worker_finds_its_verdict_in_the_log_by_what_it_holds_alone(market: MarketFixture, api: TestClient) -> None:
    workers = [market.worker() for _ in range(3)]
    market.play(*workers)
    write_log(market)
    head, _ = head_of(api, market)
    replica = market.replicas(workers[0])[0]
    (task,) = market.tasks(Task.id == replica.task_id)
    leaf = job_log.encode_verdict(
        task.offer_digest, replica.worker, replica.outcome or 0, replica.verdict_signature or b""
    )
    shown = get(api, market, "/leaves/verdict", about=f"{replica.id}/{replica.outcome}", size=head.size)
    proof = LeafProof.model_validate(shown)
    assert is_included(leaf, proof.number, head.size, proof.path, head.root)
    assert not is_included(leaf + b" ", proof.number, head.size, proof.path, head.root)
    answer = api.get(f"/v1/jobs/{market.job}/log/leaves/verdict", params={"about": "nobody/1", "size": head.size})
    assert answer.status_code == 404


@FULL
def test_an_earlier_head_is_proven_to_be_a_prefix(market: MarketFixture, api: TestClient) -> None:
    workers = [market.worker() for _ in range(3)]
    market.until(lambda: len(market.rounds()) == 2, *workers)
    write_log(market)
    early, _ = head_of(api, market)
    market.play(*workers)
    write_log(market)
    late, _ = head_of(api, market)
    assert early.size < late.size
    proof = ConsistencyProof.model_validate(get(api, market, "/consistency", old=early.size, size=late.size))
    assert job_log.find_fork(early, late, proof.path) == ""
    assert job_log.find_fork(late, early, proof.path) == ""


@pytest.mark.parametrize("later", leave_to_full([0, 3]))
def test_two_observers_find_a_service_that_shows_two_histories(
    market: MarketFixture, api: TestClient, later: int
) -> None:
    """One was shown a head over other leaves, of the same size or an earlier one; no proof mends that."""
    market.play(*[market.worker() for _ in range(3)])
    write_log(market)
    leaves, shown = leaves_of(api, market), head_of(api, market)
    domain, signer = market.context.domain, market.context.signer_address
    tree = GrowingTree([Hash(hash_leaf(b"another")), *leaves[1:]][: len(leaves) - later])
    lie = LogHead(shown[0].job, len(tree), Hash(tree.compute_root()))
    told = (lie, market.context.sign(lie))
    proof = GrowingTree(leaves).prove_consistency(lie.size, len(leaves))
    said = "does not begin with the first" if later else "two histories"
    assert said in job_log.find_fork(lie, shown[0], proof)
    assert job_log.find_signed_fork(domain, signer, told, shown, leaves), "a third party needs no service"
    honest = LogHead(lie.job, lie.size, Hash(GrowingTree(leaves).compute_root(lie.size)))
    assert not job_log.find_signed_fork(domain, signer, (honest, market.context.sign(honest)), shown, leaves)
    made_up = (lie, sign_digest(market.worker().key, digest_struct(domain, lie)))
    assert not job_log.find_signed_fork(domain, signer, made_up, shown, leaves), "only its own word condemns it"


def test_an_empty_log_is_a_404_that_names_its_first_batch(market: MarketFixture, api: TestClient) -> None:
    answer = api.get(f"/v1/jobs/{market.job}/log")
    assert answer.status_code == 404
    assert "first batch" in answer.text


@BOTH
def test_two_services_that_extend_one_log_at_once_skip_no_place_and_fill_none_twice(market: MarketFixture) -> None:
    """The first commits once the second one waits for it: leaves of both come one after another."""
    write_log(market)
    contexts, appended = (market.context, market.another()), Event()

    def issue(context: Context, attempt: int, first: bool) -> None:
        if not first:
            wait_for(appended)
        with context.begin() as work:
            job = work.get_one(Job, market.job)
            work.add(build_task(context, job, work.get_one(Round, (job.id, 0)), 0, attempt, market.clock.now))
            work.flush()
            append_leaves(work, job)
            appended.set()
            if first and work.shared:  # on SQLite the second one cannot begin before the first commits
                wait_until(lambda: work.session.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")))

    with ThreadPoolExecutor() as both:
        for done in [both.submit(issue, context, 7 + n, n == 0) for n, context in enumerate(contexts)]:
            done.result(PATIENCE_S)
    with market.reading() as reader:
        rows = reader.session.scalars(
            select(LogLeaf).where(LogLeaf.job_id == market.job).order_by(LogLeaf.number)
        ).all()
    assert [row.number for row in rows] == list(range(len(rows)))
    offers = [row.about for row in rows if row.kind == LeafKind.OFFER]
    assert sorted(offers) == sorted(task.id for task in market.tasks())
    assert [about.rsplit("-", 1)[1] for about in offers[-2:]] == ["7", "8"]
