"""Everybody is honest: three rounds, every gradient accepted, paid and used."""

from books import check_books
from market_floor import PRICE, first_parameters

from gradmarket.market.model import tensors
from gradmarket.market.terms import Digest, JobState, RoundState, TaskState


def test_three_rounds(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=3, tasks_per_round=2)
    workers = [floor.worker() for _ in range(6)]
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert [row.state for row in floor.rounds()] == [RoundState.CLOSED] * 3
    assert [task.state for task in floor.tasks()] == [TaskState.FINAL] * 6
    assert sum(floor.earned().values()) == 6 * 3 * PRICE
    for worker in workers:
        told = 0 if worker.voucher is None else worker.voucher.cumulative
        assert told == floor.account(worker).earned == floor.earned().get(worker.address, 0)
    check_books(floor)
    before = first_parameters()
    for number, row in enumerate(floor.rounds()):
        after = tensors.unpack(floor.context.blobs.read(Digest(row.updated)))
        assert after["n"] == number + 1
        assert (after["w"] != before["w"]).all()
        before = after
