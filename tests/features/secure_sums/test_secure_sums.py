"""Private jobs whose rounds are summed by secure aggregation: bits, pay, drop-outs and lies at every step, restarts."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from contracts.ledger import Ledger
from gradmarket.market.errors import Conflict, MarketError, NotFound, Refused
from gradmarket.market.features.secure_sums.job_sum import build_sum_terms
from gradmarket.market.features.secure_sums.sum_messages import RevealedShare, SharesMessage
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Digest, Hash, JobState, ReplicaState
from graphdoc import tensors
from requester.exchange.commitments import TooEarly, TooLate
from requester.features.private import holder_rows
from requester.features.secure_sums.secure_tables import SecureMessage, SecureSum
from requester.store.round_sum import count_noised_rounds
from tests.features.secure_sums.secure_holders import SecureHolder, Staller, mean_of
from tests.lanes import FULL, leave_to_full
from tests.onchain import OpenJob
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import key_of

INPUTS = {"x": {"dtype": "float32", "shape": [4]}, "y": {"dtype": "int64", "classes": 2}}
COUNT, DROP = 5, 1
OpenSums = Callable[..., tuple[MarketFixture, list[SecureHolder]]]


def spec(count: int = COUNT, drop: int = DROP, **more: Any) -> dict[str, Any]:
    names = [address_of(key_of(f"worker {n}")) for n in range(count)]
    asked = {"may_collude": 1, "may_drop": drop}
    data = {"inputs": INPUTS, "holders": names, "secure_aggregation": asked}
    limits = {"min_tasks": count - drop} if drop else {}
    return {"data": data, "tasks_per_round": count, "norm_bound": 100.0, **limits, **more}


def take_part(market: MarketFixture, kind: type[SecureHolder] = SecureHolder) -> SecureHolder:
    made: Any = market.worker(kind=kind)
    with market.context.begin() as work:
        holder_rows.record_holder(work, market.job, made.address, None, market.clock())
    return made  # type: ignore[no-any-return]


@pytest.fixture
def market_ledger(ledger: Ledger) -> Ledger:
    """A chain, of whose blocks the neighbours are drawn."""
    return ledger


@pytest.fixture
def open_sums(new_market, open_job: OpenJob) -> OpenSums:  # type: ignore[no-untyped-def]
    def make(
        count: int = COUNT, drop: int = DROP, staying: int | None = None, **more: Any
    ) -> tuple[MarketFixture, list[SecureHolder]]:
        opened = open_job()
        opened.reserve((address_of(opened.requester), 1))  # in a block after the one that opened the job
        market = new_market(chain_job=opened.id, **spec(count, drop, **more))
        return market, [take_part(market) for _ in range(count if staying is None else staying)]

    return make


def merged_plainly(market: MarketFixture, six: Sequence[SecureHolder], number: int = 0) -> None:
    """Asserts that the round's parameters have the bits of a merge of these holders' plain sum."""
    row, blobs = market.rounds()[number], market.context.blobs
    before, after = (tensors.unpack_tensors(blobs.read(Digest(one)))["w"] for one in (row.parameters, row.updated))
    expected = (before - np.float32(0.125) * mean_of(market, list(six), number)).astype(np.float32)
    assert (after == expected).all()
    assert after.tobytes() == expected.tobytes()


def at(market: MarketFixture, six: Sequence[SecureHolder], step: int) -> SecureSum:
    """Plays until the step is open."""
    market.until(lambda: market.all(SecureSum) and market.all(SecureSum)[-1].step >= step, *six)
    return market.all(SecureSum)[-1]


def test_a_round_has_the_bits_of_the_plain_sum_and_all_in_it_are_paid(open_sums: OpenSums) -> None:
    market, six = open_sums(rounds=3)
    market.play()
    assert market.state() == JobState.FINISHED
    for number in range(3):
        merged_plainly(market, six, number)
    assert market.earned() == {one.address: 3 * PRICE for one in six}
    assert [row.loss for row in market.rounds()] == [None] * 3
    assert not market.all(SecureMessage), "nothing that was said is kept once a round is merged"
    check_books(market)


@FULL
@pytest.mark.parametrize("step", leave_to_full([2, 1, 3]))
def test_a_holder_that_drops_out_before_its_vector_is_neither_summed_nor_paid(open_sums: OpenSums, step: int) -> None:
    market, six = open_sums()
    six[2].gone = step
    market.play(passes=120)
    assert market.state() == JobState.FINISHED
    stayed = [one for one in six if one is not six[2]]
    merged_plainly(market, stayed)
    assert market.earned() == {one.address: PRICE for one in stayed}
    check_books(market)


@pytest.mark.parametrize("step", leave_to_full([4, 5]))
def test_a_holder_that_drops_out_after_its_vector_is_summed_and_paid_on_its_return(
    open_sums: OpenSums, step: int
) -> None:
    market, six = open_sums()
    six[2].gone = step
    at(market, six, 6)
    assert market.state() == JobState.RUNNING
    six[2].gone = 7
    market.play(passes=120)
    assert market.state() == JobState.FINISHED
    merged_plainly(market, six)
    assert market.earned() == {one.address: PRICE for one in six}


@FULL
def test_a_summed_holder_that_never_comes_back_holds_up_no_other(open_sums: OpenSums) -> None:
    market, six = open_sums()
    six[2].gone = 4
    market.play(passes=200)
    assert market.state() == JobState.FINISHED
    merged_plainly(market, six)
    assert set(market.earned()) == {one.address for one in six} - {six[2].address}


@FULL
def test_a_round_that_too_many_left_begins_anew_and_they_may_come_back(open_sums: OpenSums) -> None:
    market, six = open_sums()
    for one in six[:3]:
        one.gone = 3
    at(market, six, 3)
    market.until(lambda: market.all(SecureSum)[0].attempt == 1, *six)
    for one in six:
        one.gone = 7
    market.play(passes=200)
    assert market.state() == JobState.FINISHED
    assert market.all(SecureSum)[0].attempt >= 1
    assert [event["attempt"] for event in market.events("sum_failed")][:1] == [0]


def forged(message: Any) -> Any:
    return message.model_copy(update={"signature": bytes(65)})


def swapped_shares(message: Any) -> Any:
    return message.model_copy(update={"shares": message.shares[1:]})


def false_share(message: Any) -> Any:
    false = [RevealedShare(owner=one.owner, share=Hash(bytes(32))) for one in message.self_shares]
    return message.model_copy(update={"self_shares": false})


@pytest.mark.parametrize(
    ("step", "lie", "said"),
    leave_to_full(
        [
            (5, false_share, "did not deal"),
            (1, forged, "signature"),
            (3, forged, "signature"),
            (2, swapped_shares, "each neighbour once"),
            (4, forged, "signature"),
        ],
    ),
)
def test_a_lie_at_a_step_is_refused_and_the_round_goes_on_without_it(
    open_sums: OpenSums, step: int, lie: Callable[[Any], Any], said: str
) -> None:
    market, six = open_sums()
    six[1].lies[step] = lie
    market.play(passes=200)
    assert said in six[1].refused[0]
    assert market.state() == JobState.FINISHED
    counted = six if step > 3 else [one for one in six if one is not six[1]]
    merged_plainly(market, counted)
    assert six[1].address not in market.earned()


@FULL
@pytest.mark.parametrize("step", [3, 1, 2, 4, 5])
def test_a_second_other_message_of_a_step_is_refused(open_sums: OpenSums, step: int) -> None:
    market, six = open_sums()
    at(market, six, step)
    liar = six[0]
    market.until(lambda: liar.state is not None and int(liar.state.step) == step, *six)
    (held,) = [one for one in liar.held.values() if one.state == ReplicaState.LEASED]
    liar.hand_in(held, liar.said, liar.vector)
    other = {"holder": liar.said.holder, **liar.said.model_dump()}
    changed = type(liar.said).model_validate(other | _changed(liar.said))
    with pytest.raises(Conflict, match="another message in this step"):
        liar.hand_in(held, changed, liar.vector)


def _changed(said: Any) -> dict[str, Any]:
    return (
        {"signature": bytes(65)}
        if hasattr(said, "signature")
        else {name: [] for name in said.model_fields_set if name != "holder"}
    )


def test_a_vector_that_was_not_signed_is_refused_and_leaves_nothing_on_disk(open_sums: OpenSums) -> None:
    market, six = open_sums()
    at(market, six, 3)
    market.until(lambda: int(six[0].state.step) == 3, six[0])
    (held,) = [one for one in six[0].held.values() if one.state == ReplicaState.LEASED]
    before = {path.name for path in (market.folder / "blobs").rglob("*")}
    with pytest.raises(Refused, match="not the one that it signed"):
        six[0].hand_in(held, six[0].said, bytes(len(six[0].vector)))
    with pytest.raises(MarketError, match="has 16 bytes"):
        six[0].hand_in(held, six[0].said, six[0].vector[:-4])
    assert {path.name for path in (market.folder / "blobs").rglob("*")} == before


def test_only_the_lease_s_holder_sends_and_only_at_the_open_step(open_sums: OpenSums) -> None:
    market, six = open_sums()
    market.until(lambda: six[0].held and six[1].held, six[0], six[1])
    (held,) = six[0].held.values()
    one, other = (worker.said for worker in six[:2])
    with pytest.raises(NotFound, match="holds no replica"):
        six[1].hand_in(held, other)
    with pytest.raises(Refused, match="this worker is holder"):
        six[0].hand_in(held, one.model_copy(update={"holder": other.holder}))
    with pytest.raises(TooEarly, match="step 1 is open"):
        six[0].hand_in(held, SharesMessage(holder=one.holder, shares=[]), step=2)


@FULL
def test_a_message_of_an_ended_lease_is_too_late(open_sums: OpenSums) -> None:
    market, six = open_sums()
    market.until(lambda: six[0].held, six[0])
    (held,) = six[0].held.values()
    six[0].begin(held, 0)
    market.lapse(10_000)
    with pytest.raises(TooLate, match="the lease is over"):
        six[0].hand_in(held, six[0].said)


@FULL
def test_a_holder_that_waits_for_the_others_keeps_its_lease(open_sums: OpenSums) -> None:
    market, six = open_sums()
    for _ in range(60):
        six[0].turn()
        market.clock.now += 5
        market.drive()
    assert [one.state for one in market.replicas(six[0])] == [ReplicaState.LEASED]


def stallers(market: MarketFixture, quiet: int, count: int = 1) -> list[Any]:
    """Returns listed holders that have not come yet, and that send nothing new from step `quiet` on."""
    found = [take_part(market, Staller) for _ in range(count)]
    for one in found:
        one.quiet = quiet
    return found


@FULL
@pytest.mark.parametrize("quiet", [2, 1, 3, 4, 5, 6])
def test_a_holder_that_polls_without_a_message_holds_up_no_other(open_sums: OpenSums, quiet: int) -> None:
    market, five = open_sums(staying=COUNT - 1)
    (liar,) = stallers(market, quiet)
    market.play(passes=200)
    assert market.state() == JobState.FINISHED
    merged_plainly(market, five if quiet <= 3 else [*five, liar])
    assert liar.address not in market.earned()
    assert market.strikes(liar) == 1 or quiet in (2, 3), "others went on without waiting for its lease to end"


@FULL
def test_a_sum_that_too_many_hold_up_in_the_last_step_pauses_the_job(open_sums: OpenSums) -> None:
    market, _ = open_sums(staying=2)
    stallers(market, 5, COUNT - 2)
    market.play(passes=200)
    assert market.state() == JobState.PAUSED
    assert "must not be done again" in market.the_job().reason


@FULL
@pytest.mark.parametrize("step", [4, 1, 2, 3, 5, 6])
def test_the_service_restarts_at_any_step(open_sums: OpenSums, step: int) -> None:
    market, six = open_sums(rounds=2)
    at(market, six, step)
    market.crash()
    market.play(passes=120)
    assert market.state() == JobState.FINISHED
    merged_plainly(market, six, 0)
    merged_plainly(market, six, 1)
    assert market.earned() == {one.address: 2 * PRICE for one in six}


@FULL
def test_merged_rounds_are_merged_again_after_a_crash(open_sums: OpenSums) -> None:
    market, six = open_sums(rounds=3)
    market.until(lambda: len(market.rounds()) > 1)
    market.crash()
    market.play(passes=120)
    assert market.state() == JobState.FINISHED
    merged_plainly(market, six, 2)


@FULL
def test_no_file_of_the_service_holds_an_unmasked_answer(open_sums: OpenSums) -> None:
    """At any step: neither as floats nor as whole numbers, of 32 or of 64 bits."""
    market, six = open_sums(rounds=2)
    seen = set[bytes]()
    for _ in range(60):
        market.take_turns(*six)
        market.clock.now += 2
        market.drive()
        seen |= {path.read_bytes() for path in market.folder.rglob("*") if path.is_file()}
        if market.state() != JobState.RUNNING:
            break
    assert market.state() == JobState.FINISHED
    numbers = [found for one in six for found in one.numbers.values()]
    assert len(numbers) == 2 * COUNT
    assert any(mean_of(market, six, 0).tobytes() in data for data in seen), "the mean is found so"
    for found in numbers:
        unit = 2.0 ** build_sum_terms(six[0].spec).units.exponent
        forms = (found.astype("<i8"), found.astype("<u4"), (found * unit).astype("<f4"), (found * unit).astype("<f8"))
        assert not any(form.tobytes() in data for form in forms for data in seen)


@FULL
def test_a_round_that_was_unmasked_in_part_is_never_begun_anew(open_sums: OpenSums) -> None:
    """Too few answer step 5 and all others are gone: the job is paused with its reason."""
    market, six = open_sums()
    at(market, six, 5)
    for one in six[1:]:
        one.gone = 5
    market.play(passes=300)
    row = market.all(SecureSum)[0]
    assert (row.attempt, row.step) == (0, 5)
    assert market.state() == JobState.PAUSED
    assert "must not be done again" in market.the_job().reason


@FULL
@pytest.mark.parametrize(("step", "away"), [(4, 2), (5, 3)])
def test_a_round_with_published_survivors_waits_for_them_and_never_restarts(
    open_sums: OpenSums, step: int, away: int
) -> None:
    """A holder signs one set of survivors a round. The requester resumes the job once the missing ones are back."""
    market, six = open_sums()
    at(market, six, step)
    for one in six[:away]:
        one.gone = step
    market.play(passes=300)
    assert market.state() == JobState.PAUSED
    assert "must not be done again" in market.the_job().reason
    for one in six[:away]:
        one.gone = 7
    for _ in range(100):  # the others wait on while the job is paused
        for one in six[away:]:
            one.turn()
        market.lapse(5)
    market.resume()
    market.play(passes=300)
    row = market.all(SecureSum)[0]
    assert (market.state(), row.attempt) == (JobState.FINISHED, 0)
    merged_plainly(market, six)


@FULL
def test_a_receipt_without_a_vector_in_the_sum_is_refused(open_sums: OpenSums) -> None:
    market, six = open_sums()
    at(market, six, 2)
    cheat = six[0]
    (held,) = [one for one in cheat.held.values() if one.state == ReplicaState.LEASED]
    cheat.paid_for = bytes(97)
    cheat.deliver(held)
    cheat.gone = 0
    market.play(*six[1:], passes=200)
    assert market.state() == JobState.FINISHED
    assert cheat.address not in market.earned()
    assert {one.state for one in market.replicas(cheat)} == {ReplicaState.REJECTED}


@FULL
def test_a_cancelled_job_keeps_no_message(open_sums: OpenSums) -> None:
    market, six = open_sums()
    at(market, six, 4)
    market.cancel()
    assert not market.all(SecureMessage)


NOISED = {"noise_multiplier": 2.0, "epsilon": 4.0, "delta": 1e-3}


def test_holders_add_the_accounted_noise_by_themselves(open_sums: OpenSums) -> None:
    """The service adds none, and the noise of the fewest honest holders has the whole deviation."""
    market, six = open_sums(rounds=1, privacy=NOISED)
    market.play()
    assert market.state() == JobState.FINISHED
    merged_plainly(market, six)
    asked = six[0].spec
    with market.context.reading() as reader:  # all stayed: more noise than the fewest add
        assert count_noised_rounds(reader, market.job, asked, 1) == pytest.approx((COUNT - DROP - 1) / (COUNT - 1))
    assert build_sum_terms(asked).noise == pytest.approx(2.0 * 100.0 / np.sqrt(COUNT - DROP - 1))
