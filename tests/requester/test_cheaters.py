"""Wrong answers: alone they are outvoted, together they are found out where their payload cannot be used."""

from eth_utils.crypto import keccak

from gradmarket.market.rules import secrets
from gradmarket.market.terms import Digest, JobState, ReplicaState, TaskState
from graphdoc import tensors
from tests.kit.behaviour import HONEST, NOISE, SIGN_FLIP, Behaviour, filled, scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE


def test_a_minority_cheater_is_rejected_with_evidence_and_paid_nothing(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=3)
    cheater, *honest = market.worker(SIGN_FLIP), market.worker(), market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.earned() == {worker.address: 3 * PRICE for worker in honest}
    assert cheater.voucher is None
    for held in cheater.held.values():
        assert held.told is not None
        assert held.told.state == ReplicaState.REJECTED
        assert held.told.signature is not None
        assert held.told.price == 0
        assert held.told.root not in (None, held.root)
        assert "2 of 3 committed to another root" in held.told.reason
    check_books(market)


def test_a_cheater_does_not_change_the_parameters(new_market) -> None:  # type: ignore[no-untyped-def]
    clean, attacked = new_market(rounds=3), new_market(rounds=3)
    for market, third in ((clean, HONEST), (attacked, NOISE)):
        market.worker(third), market.worker(), market.worker()
        market.play()
    assert attacked.final_parameters() == clean.final_parameters()


def test_a_gradient_on_stale_parameters_has_another_root(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=2)
    stale, *_ = market.worker(), market.worker(), market.worker()
    first = market.rounds
    compute = stale.compute

    def on_the_first_parameters(offer):  # type: ignore[no-untyped-def]
        old = offer.model_copy(update={"parameters": bytes.fromhex(first()[0].parameters[7:])})
        return compute(old)

    stale.compute = on_the_first_parameters
    market.play()
    states = [replica.state for replica in market.replicas(stale)]
    assert states == [ReplicaState.PAYABLE, ReplicaState.REJECTED]
    check_books(market)


def test_two_colluders_of_three_hold_the_quorum(new_market) -> None:  # type: ignore[no-untyped-def]
    """The limit of voting: only separation and audits stand against a majority."""
    market = new_market()
    colluders = [market.worker(scaled(3.0)), market.worker(scaled(3.0))]
    honest = market.worker()
    market.play()
    assert market.earned() == {worker.address: PRICE for worker in colluders}
    assert market.replica(honest).state == ReplicaState.REJECTED
    check_books(market)


def test_sybils_of_one_payout_get_one_place_on_a_task(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=2)
    first = market.worker(scaled(3.0))
    sybils = [first, market.worker(scaled(3.0), payout=first.address), market.worker(scaled(3.0), payout=first.address)]
    honest = [market.worker(), market.worker()]
    market.play()
    assert market.state() == JobState.FINISHED
    assert len({replica.worker for replica in market.replicas()} & {sybil.address for sybil in sybils}) >= 1
    for task in market.tasks():
        assert sum(r.task_id == task.id and r.payout == first.address for r in market.replicas()) == 1
    assert market.earned() == {worker.address: 2 * PRICE for worker in honest}


@FULL
def test_sybils_of_one_operator_where_the_job_separates_operators(new_market) -> None:  # type: ignore[no-untyped-def]
    together, apart = new_market(separation=["operator"]), new_market(separation=[])
    for market in (together, apart):
        first = market.worker()
        market.worker(payout=first.address), market.worker(payout=first.address)
        market.play(passes=5)
    assert together.replicas() == []
    assert "needs 3 separate workers" in together.why_waiting()
    assert apart.state() == JobState.FINISHED


def diverges(new_market, behaviour: Behaviour, reason: str) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=1)
    colluders = [market.worker(behaviour) for _ in range(3)]
    market.play()
    (task,) = market.tasks()
    assert task.state == TaskState.DIVERGED
    assert market.state() == JobState.PAUSED
    assert reason in market.the_job().reason
    assert reason in market.why_waiting()
    assert market.earned() == {worker.address: PRICE for worker in colluders}
    market.take_turns(*colluders)
    for worker in colluders:
        told = worker.newest().told
        assert told is not None
        assert (told.state, told.price) == (ReplicaState.DIVERGED, PRICE)
        assert reason in told.reason
    check_books(market)
    for worker in colluders:
        worker.behaviour = HONEST
    market.resume()
    market.play()
    assert market.state() == JobState.FINISHED
    assert [task.state for task in market.tasks()] == [TaskState.FINAL, TaskState.FINAL]
    assert [task.used for task in market.tasks()] == [False, True]
    check_books(market)


def test_not_a_number_diverges(new_market) -> None:  # type: ignore[no-untyped-def]
    diverges(new_market, filled("w", float("nan")), "not_finite")


@FULL
def test_infinity_in_a_buffer_diverges(new_market) -> None:  # type: ignore[no-untyped-def]
    diverges(new_market, filled("m", float("inf")), "not_finite")


@FULL
def test_a_norm_over_the_bound_diverges(new_market) -> None:  # type: ignore[no-untyped-def]
    diverges(new_market, filled("w", 1e6), "norm_over_bound")


def test_a_lone_diverging_answer_is_only_outvoted(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    cheater, *_ = market.worker(filled("w", float("nan"))), market.worker(), market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.replica(cheater).state == ReplicaState.REJECTED


def test_a_malformed_payload_that_a_quorum_agreed_on_is_rejected_and_the_task_tried_again(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    workers = [market.worker() for _ in range(3)]
    honestly = workers[0].compute
    for worker in workers:
        worker.compute = lambda offer: honestly(offer)[:-4]
    market.until(lambda: market.tasks()[0].state == TaskState.FAILED)
    assert market.earned() == {}
    market.take_turns(*workers)
    for worker in workers:
        told = next(iter(worker.held.values())).told
        assert told is not None
        assert told.state == ReplicaState.REJECTED
        assert "bytes" in told.reason
        worker.compute = honestly
    for worker in workers:
        for replica, held in worker.held.items():
            worker.held[replica] = held if held.state != ReplicaState.LEASED else type(held)(held.lease)
    market.play()
    assert market.state() == JobState.FINISHED
    first, second = market.tasks()
    assert (first.attempt, second.attempt) == (0, 1)
    assert first.offer_digest != second.offer_digest
    assert market.earned() == {worker.address: PRICE for worker in workers}
    check_books(market)


def test_a_tie_at_the_most_replicas_is_inconclusive_and_tried_again(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(replication={"name": "fixed", "replicas": 3, "max_replicas": 4}, settings={"max_attempts": 3})
    for behaviour in (scaled(2.0), scaled(2.0), HONEST, HONEST):
        market.worker(behaviour).capacity = 1
    market.until(lambda: any(task.state == TaskState.FAILED for task in market.tasks()) or market.state() != "running")
    failed = [task for task in market.tasks() if task.state == TaskState.FAILED]
    for task in failed:
        replicas = [replica for replica in market.replicas() if replica.task_id == task.id]
        assert [replica.state for replica in replicas] == [ReplicaState.INCONCLUSIVE] * 4
    check_books(market)


@FULL
def test_four_that_never_agree_pause_the_job_after_the_last_attempt(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(settings={"max_attempts": 3}, replication={"name": "fixed", "replicas": 3, "max_replicas": 3})
    workers = [market.worker(NOISE) for _ in range(3)]
    market.play()
    assert market.state() == JobState.PAUSED
    assert "no quorum" in market.the_job().reason
    assert [task.state for task in market.tasks()] == [TaskState.FAILED] * 3 + [TaskState.OPEN]
    assert len({task.offer_digest for task in market.tasks()}) == 4
    assert len({task.offer.seed for task in market.tasks()}) == 1
    market.take_turns(*workers)
    for worker in workers:
        told = next(iter(worker.held.values())).told
        assert told is not None
        assert (told.state, told.outcome, told.root) == (ReplicaState.INCONCLUSIVE, 3, None)
        worker.behaviour = HONEST
    market.resume()
    market.play()
    assert market.state() == JobState.FINISHED
    check_books(market)


@FULL
def test_accepted_payloads_are_kept_until_they_are_merged_and_then_dropped(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=2, rounds=1)
    workers = [market.worker() for _ in range(3)]
    market.until(lambda: any(task.payload for task in market.tasks()), *workers)
    (accepted,) = [task for task in market.tasks() if task.payload]
    assert market.context.blobs.has(Digest(accepted.payload))
    market.play()
    assert not market.context.blobs.has(Digest(accepted.payload))
    assert tensors.unpack_tensors(market.context.blobs.read(Digest(market.final_parameters())))["n"] == 1


def test_a_root_without_its_payload_earns_nothing(new_market) -> None:  # type: ignore[no-untyped-def]
    """Three that agree on a made-up root: nobody can bring its payload, so nobody is paid."""
    market = new_market(settings={"max_attempts": 2})
    workers = [market.worker() for _ in range(3)]
    made_up = Digest("blake3:" + keccak(text="made up").hex())
    market.gather()
    for worker in workers:
        held = worker.computed(worker.newest())
        offer = market.task().offer_digest
        worker.send_poll(
            commitments=[worker.commitment(held, sealed=sealed(offer, worker.address, held.salt, made_up))]
        )
    market.drive()
    for worker in workers:
        worker.receive_answer()
        worker.send_poll(reveals=[worker.revelation(worker.newest(), root=made_up)])
    market.drive()
    assert market.task().state == TaskState.UPLOADING
    for _ in range(3):
        market.lapse(11)
    assert market.tasks()[0].state == TaskState.FAILED
    assert market.earned() == {}
    assert [market.strikes(worker) for worker in workers] == [1, 1, 1]
    check_books(market)


def sealed(offer: bytes, worker: str, salt: bytes, root: Digest) -> bytes:
    return secrets.seal_commitment(offer, worker, salt, bytes.fromhex(root[7:]))  # type: ignore[arg-type]
