"""The rules by which an identity that costs nothing gains nothing, and the bound that follows from them."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.demo.workers import JOB
from gradmarket.market.features import reputation
from gradmarket.market.features.audits import auditing
from gradmarket.market.features.proven import seat_rules
from gradmarket.market.features.reputation import NEWCOMER, UNKNOWN, GradientCost
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import voting
from gradmarket.market.rules.assignment import Party
from gradmarket.market.rules.replication import BEST, STRANGER, Lead, lies_between, proven
from gradmarket.market.terms import Address, Hash, ReplicaId
from gradmarket.trust.forecast import Assumed, compute_forecast
from requester.features.audits import referrals

SECRET = Hash(bytes(32))
SETTINGS = proven.Settings()
KEEPING: dict[str, Any] = {
    "name": "rounds",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 16},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 100,
    "tasks_per_round": 8,
    "price": "10",
}


def party(name: str, payout: str | None = None) -> Party:
    return Party(Address(name), name, Address(payout or name), None)


def newcomer(name: str, network: str | None = None, **facts: Any) -> seat_rules.Newcomer:
    known = {"standing": 0.0} | facts
    return seat_rules.Newcomer(Party(Address(name), name, Address(name), network), **known)


def names(count: int) -> list[str]:
    return [f"0x{number:040x}" for number in range(count)]


def standing(audits: int, days: float = 0.0, answer: GradientCost = UNKNOWN, here: GradientCost = UNKNOWN) -> float:
    record = NEWCOMER
    for _ in range(audits):
        record = reputation.apply_passed_audit(record, 0.0, answer)
    return reputation.compute_record_standing(record, days * 86_400, here)


def ballots(*sizes: int) -> list[frozenset[ReplicaId]]:
    return [frozenset(ReplicaId(f"{group}-{number}") for number in range(size)) for group, size in enumerate(sizes)]


class TestNewcomers:
    def test_sixteen_audits_prove_and_fifteen_do_not(self) -> None:
        assert [proven.is_proven(standing(audits)) for audits in (0, 14, 16)] == [False, False, True]

    def test_a_proven_operator_stays_so_for_some_days_without_work(self) -> None:
        assert [proven.is_proven(standing(16, days)) for days in (4, 10)] == [True, False]

    def test_one_that_erred_alone_begins_again(self) -> None:
        record = reputation.apply_lone_error(reputation.apply_passed_audit(NEWCOMER, 0.0), 1.0)
        assert not proven.is_proven(reputation.compute_record_standing(record, 1.0), proof=1)

    @pytest.mark.parametrize(
        ("answer", "here", "proves"),
        [
            (GradientCost(10.0, 1e9), GradientCost(10.0, 1e9), True),
            (GradientCost(10.0, 1e9), GradientCost(20.0, 2e9), True),
            (GradientCost(10.0, 1e9), GradientCost(40.0, 1e9), False),
            (GradientCost(10.0, 1e9), GradientCost(10.0, 4e9), False),
            (GradientCost(1e-6, 1e9), GradientCost(10.0, 1e9), False),
            (GradientCost(1e6, 1e3), GradientCost(10.0, 1e9), False),
            (GradientCost(1e6, 1e12), GradientCost(10.0, 1e9), True),
        ],
        ids=["alike", "half", "dearer", "larger", "dust price", "dear and tiny", "much more"],
    )
    def test_a_proof_counts_by_what_it_cost(self, answer: GradientCost, here: GradientCost, proves: bool) -> None:
        assert proven.is_proven(standing(16, answer=answer, here=here)) is proves

    def test_one_dear_answer_is_not_sixteen(self) -> None:
        assert not proven.is_proven(standing(1, answer=GradientCost(1e6, 1e12), here=GradientCost(1.0, 1.0)))

    @pytest.mark.parametrize(
        ("answers", "proves"),
        [
            ({"here": 16}, True),
            ({"own": 1000}, False),
            ({"own": 1000, "here": 14}, False),
            ({"own": 1000, "here": 16}, True),
            ({"own": 16, "other": 16}, False),
            ({"own": 1000, "other": 1000, "third": 1000}, False),
            ({"own": 1000, "other": 1000, "here": 3}, False),
            ({"own": 1000, "other": 12, "here": 4}, True),
            ({"own": 8, "other": 8, "third": 8, "here": 4}, True),
        ],
    )
    def test_requesters_alone_prove_nobody_for_others(self, answers: dict[str, int], proves: bool) -> None:
        """However dear the answers that it paid itself were."""
        record = NEWCOMER
        for payer, count in answers.items():
            for _ in range(count):
                record = reputation.apply_passed_audit(record, 0.0, GradientCost(1e6, 1e12, payer))
        here = GradientCost(10.0, 1e9, "here")
        assert proven.is_proven(reputation.compute_record_standing(record, 0.0, here)) is proves
        cheap = replace(record, payers={})
        assert proven.is_proven(reputation.compute_record_standing(cheap, 0.0, here)), "recorded before payers were"

    def test_evidence_of_others_weighs_without_the_largest_payer(self) -> None:
        record = NEWCOMER
        for cost in (GradientCost(1e6, 1e12, "own"), GradientCost(1.0, 1.0, "other")):
            for _ in range(16):
                record = reputation.apply_passed_audit(record, 0.0, cost)
        assert reputation.weigh_evidence(record, GradientCost(10.0, 1e9, "here")) < 1.0
        later = reputation.decay_record(record, reputation.HALF_LIFE_S)
        assert later.payers["own"].evidence == pytest.approx(8.0)

    @pytest.mark.parametrize("outvoted", [0, 11])
    def test_one_dear_answer_that_a_requester_paid_itself_makes_no_cheap_ones_of_others_dear(
        self, outvoted: int
    ) -> None:
        """Nor once so little evidence of it is left that its payer is forgotten."""
        record = reputation.apply_passed_audit(NEWCOMER, 0.0, GradientCost(1e30, 1e30, "own"))
        for _ in range(outvoted):
            record = reputation.apply_outvoted_ballot(record, 0.0)
        for payer in ("other", "third"):
            for _ in range(16):
                record = reputation.apply_passed_audit(record, 0.0, GradientCost(1.0, 1.0, payer))
        assert ("own" in record.payers) is (outvoted == 0)
        assert reputation.weigh_evidence(record, GradientCost(10.0, 1e9, "here")) < 1.0

    @given(st.lists(st.integers(1, 50), min_size=1, max_size=50))
    def test_newcomers_have_one_task_in_eight_over_all_rounds(self, sizes: list[int]) -> None:
        before, given_ = 0, 0
        for tasks in sizes:
            given_ += seat_rules.count_newcomers_tasks(before, tasks, 6, 3)
            before += tasks
            assert given_ == before // proven.SHARE

    def test_untried_newcomers_have_up_to_half_of_a_round_besides_once_enough_are_proven(self) -> None:
        assert [seat_rules.count_untried_tasks(share, 8) for share in (1, 2, 8)] == [0, 0, 4]

    def test_untried_newcomers_are_drawn_one_of_each_network_anew_after_a_term(self) -> None:
        queue = [newcomer(f"{number}", network=f"n{number % 5}", untried=number % 5 < 4) for number in range(20)]
        secret = Hash(b"\x07" * 32)
        drawn = [[one.party.worker for one in seat_rules.draw_untried(secret, number, queue)] for number in range(160)]
        assert {frozenset(one) for one in drawn} == {frozenset("0123")}
        assert {one[0] for one in drawn} == set("0123"), "no network is always last"
        assert all(one == drawn[number // 8 * 8] for number, one in enumerate(drawn))

    def test_money_reserved_before_counts_within_a_network_alone(self) -> None:
        """A flood that has it already comes before nobody."""
        queue = [newcomer(f"{number}", network=f"n{number}", untried=True) for number in range(4)]
        secret = Hash(b"\x07" * 32)
        plain = [one.party.worker for one in seat_rules.draw_untried(secret, 0, queue)]
        covered = [*queue, newcomer("covered", network=f"n{plain[-1]}", untried=True, covered=True)]
        drawn = [one.party.worker for one in seat_rules.draw_untried(secret, 0, covered)]
        assert drawn == [*plain[:-1], "covered"]

    def test_an_untried_newcomer_may_expect_its_seat_by_the_number_of_networks(self) -> None:
        queue = [newcomer(f"{number}", network=f"n{number % 14}", untried=True) for number in range(100)]
        assert seat_rules.count_rounds_until_seat(queue, Address("99"), 8, 8) == 2, "(13 + 2) / 8"
        known = [*queue, newcomer("known", network="n1")]
        assert seat_rules.count_rounds_until_seat(known, Address("known"), 8, 8) == 101

    @pytest.mark.parametrize(("proven_ones", "most"), [(0, 40), (2, 40), (3, 20), (5, 20), (6, 5), (300, 5)])
    def test_newcomers_have_more_tasks_while_few_are_proven(self, proven_ones: int, most: int) -> None:
        assert seat_rules.count_newcomers_tasks(0, 40, proven_ones, 3) == most

    def test_every_second_seat_goes_to_the_one_closest_to_its_proof(self) -> None:
        queue = [newcomer(name, standing=known) for name, known in zip("abc", (0.0, 0.2, 0.5), strict=True)]
        assert seat_rules.choose_newcomer(Hash(b"\x00" * 32), queue) == "a"
        assert seat_rules.choose_newcomer(Hash(b"\x01" * 32), queue) == "c"

    def test_the_network_served_longest_ago_is_first_at_any_number_of_wallets(self) -> None:
        flood = [newcomer(f"flood{number}", network="f", served_at=9.0) for number in range(5)]
        queue = seat_rules.order_newcomers([*flood, newcomer("late", joined_at=2.0), newcomer("early", joined_at=1.0)])
        assert [one.party.worker for one in queue][:3] == ["early", "late", "flood0"]
        served = seat_rules.order_newcomers([*flood, newcomer("honest", network="h", served_at=10.0)])
        assert [one.party.worker for one in served][:2] == ["flood0", "honest"], "the second of a network waits"

    def test_a_deposit_waits_behind_other_deposits_alone(self) -> None:
        queue = [newcomer(f"flood{number}") for number in range(100)] + [newcomer("backed", deposit=True)]
        chosen = [seat_rules.choose_newcomer(Hash(bytes([0, turn] * 16)), queue) for turn in (0, 1)]
        assert chosen == ["flood0", "backed"]
        rounds = [seat_rules.count_rounds_until_seat(queue, Address(one), 8, 8) for one in ("backed", "flood99")]
        assert rounds == [2, 200]

    def test_a_newcomer_gets_a_seat_within_the_estimated_rounds(self) -> None:
        """The others stay, begun ones among them; the seeds are those of tasks."""
        queue = [newcomer(f"{number}", standing=0.5 if number == 3 else 0.0) for number in range(6)]
        told = seat_rules.count_rounds_until_seat(queue, Address("5"), 8, 8)
        random, waited = Random(0), []
        for _ in range(100):
            left, seats_ = list(queue), 0
            while any(one.party.worker == "5" for one in left):
                chosen = seat_rules.choose_newcomer(Hash(random.randbytes(32)), left)
                again = [one for one in left if one.party.worker == chosen and one.standing]
                left, seats_ = [one for one in left if one.party.worker != chosen] + again, seats_ + 1
            waited.append(seats_)
        assert told == 12
        assert told * 0.7 <= sum(waited) / len(waited) <= told


class TestPlans:
    def test_a_newcomer_is_audited_for_certain_before_its_answer_is_accepted(self) -> None:
        plan = proven.plan(SETTINGS, STRANGER)
        assert (plan.first_wave, plan.maximum, plan.audit) == (1, 1, 1.0)
        assert isinstance(voting.judge_ballots(ballots(1), 1, plan), voting.Referral)

    def test_unanimous_votes_of_proven_ones_decide(self) -> None:
        plan = proven.plan(SETTINGS, Lead(standing(16), 0.0))
        assert plan.audit == 0.2
        assert isinstance(voting.judge_ballots(ballots(3), 3, plan), voting.Quorum)

    @pytest.mark.parametrize("sizes", [(2, 1), (1, 1, 1), (2,)])
    def test_any_split_or_silent_seat_is_referred(self, sizes: tuple[int, ...]) -> None:
        assert isinstance(voting.judge_ballots(ballots(*sizes), 3, proven.plan(SETTINGS, BEST)), voting.Referral)

    def test_a_seat_that_is_missing_is_filled_first_and_nobody_that_opened_is_no_answer(self) -> None:
        plan = proven.plan(SETTINGS, BEST)
        assert voting.judge_ballots(ballots(2), 2, plan) == voting.Another(1)
        assert isinstance(voting.judge_ballots([], 3, plan), voting.Inconclusive)

    def test_workers_allow_both_plans_and_no_lighter_one(self) -> None:
        strictest, lightest = proven.plan(SETTINGS), proven.plan(SETTINGS, BEST)
        weaker = proven.plan(proven.Settings(audit=0.1), BEST)
        allowed = [lies_between(plan, strictest, lightest) for plan in (strictest, lightest, weaker)]
        assert allowed == [True, True, False]


class TestRoundsTakenBack:
    @pytest.mark.parametrize(
        ("fields", "rounds"),
        [
            ({}, 20),
            ({"tasks_per_round": 16}, 20),
            ({"tasks_per_round": 40}, 3),
            ({"tasks_per_round": 10_000}, 2),
            ({"rounds": 5}, 5),
            ({"rounds": 1}, 2),
            ({"overlap": 1}, 21),
            ({"audit": {"probability": 0.5}}, 20),
            ({"audit": {"probability": 0.5, "on_failure": "go_on"}}, 2),
            ({"audit": {"probability": 0.5, "final_after": 7}}, 7),
            ({"replication": {"name": "fixed"}, "audit": {"probability": 0.5}}, 2),
            ({"replication": {"name": "fixed"}}, 2),
        ],
    )
    def test_a_job_of_proven_workers_keeps_twenty_rounds_that_are_not_wide(
        self, fields: dict[str, Any], rounds: int
    ) -> None:
        assert JobSpec.model_validate(KEEPING | fields).final_after == rounds

    def test_only_a_job_that_names_them_has_them_in_its_digest(self) -> None:
        named, unnamed = (
            JobSpec.model_validate(KEEPING | {"audit": {"probability": 0.5} | more}).model_dump(mode="json")["audit"]
            for more in ({"final_after": 2}, {})
        )
        assert (named["final_after"], "final_after" in unnamed) == (2, False)


class TestReferrals:
    def test_an_auditor_repeats_itself_before_it_refuses_all(self) -> None:
        assert auditing.judge_referral(["a", "b"], "b", None) is True
        assert auditing.judge_referral(["a", "b"], "c", None) is None
        assert auditing.judge_referral(["a", "b"], "c", "c") is False
        assert auditing.judge_referral(["a", "b"], "c", "d") is None

    def test_two_equal_wrong_answers_convict_and_a_lone_one_does_not(self) -> None:
        assert referrals.list_convicted({"1": "a", "2": "a", "3": "b"}) == {"1", "2"}
        assert referrals.list_convicted({"1": "a", "2": "b"}) == set()


class TestCrew:
    def crew(self, number: int, present: list[Party], tasks: int = 2) -> frozenset[Address]:
        return seat_rules.choose_crew(SECRET, present, number, tasks, 3, ("payout",))

    def test_a_crew_has_as_many_members_as_a_round_has_seats(self) -> None:
        assert len(self.crew(0, [party(name) for name in names(20)])) == 6
        assert len(self.crew(0, [party(name) for name in names(4)])) == 4

    def test_a_worker_that_comes_back_has_its_place_again(self) -> None:
        present = [party(name) for name in names(20)]
        gone = next(iter(self.crew(0, present)))
        without = self.crew(0, [one for one in present if one.worker != gone])
        assert gone not in without
        assert gone in self.crew(0, present)

    def test_a_crew_is_renewed_slowly_and_wholly(self) -> None:
        present = [party(name) for name in names(60)]
        crews = [self.crew(number, present) for number in range(3 * seat_rules.TERM)]
        changes = [len(one ^ other) // 2 for one, other in pairwise(crews)]
        assert max(changes) <= 2
        assert len(frozenset().union(*crews)) > 12

    def test_one_party_fills_no_task_alone(self) -> None:
        present = [party(name, "0xone") for name in names(20)] + [party(f"0x{name}") for name in "abcd"]
        assert len([worker for worker in self.crew(0, present, tasks=1) if len(worker) == 42]) == 1

    def test_an_operator_has_one_seat_whatever_number_of_wallets_it_has(self) -> None:
        """Three operators of forty wallets each, beside nine that have one."""
        farms = [
            Party(Address(f"0x{farm}{name[3:]}"), farm, Address(farm), None) for farm in "abc" for name in names(40)
        ]
        present = farms + [party(f"single {number}") for number in range(9)]
        shares = []
        for number in range(0, 400 * seat_rules.TERM, seat_rules.TERM):
            crew = self.crew(number, present)
            seated = [one.operator for one in present if one.worker in crew]
            assert len(seated) == len(set(seated)) == 6
            shares.append(len([one for one in seated if one in "abc"]))
        assert sum(shares) / len(shares) == pytest.approx(3 * 6 / 12, rel=0.1)

    def test_another_wallet_of_an_operator_is_no_other_draw(self) -> None:
        first, second = (
            [Party(Address(f"{wallet}{number}"), f"{number}", Address(f"{number}"), None) for number in range(20)]
            for wallet in "ab"
        )
        crews = [self.crew(0, present) for present in (first, second)]
        assert {worker[1:] for worker in crews[0]} == {worker[1:] for worker in crews[1]}

    def test_nobody_chooses_its_own_number(self) -> None:
        other = Hash(b"\x01" * 32)
        one = [seat_rules.compute_crew_number(secret, Address("0x1"), 0) for secret in (SECRET, other)]
        assert one[0] != one[1]


class TestTurns:
    def test_a_worker_that_answers_at_once_waits_as_long_as_others_work(self) -> None:
        assert seat_rules.compute_next_turn(100.0, [9.0, 10.0, 11.0], []) == 110.0

    def test_a_worker_that_was_right_faster_waits_no_longer_than_it_took(self) -> None:
        assert seat_rules.compute_next_turn(100.0, [9.0, 10.0, 11.0], [4.0, 5.0]) == 104.0

    def test_a_next_turn_without_measurements_is_at_once(self) -> None:
        assert seat_rules.compute_next_turn(100.0, [], []) == 100.0


def play_returning_ring(seed: int, rounds: int, tasks: int = 8, votes: int = 3, rate: float = 0.2) -> float:
    """Returns the share of tasks that a ring leaves wrong that has every newcomers' task and every vote it can cast.

    It lies as soon as it has the votes of a task, and whoever is caught comes back under a fresh identity. Written
    from the rules as the issue states them.
    """
    random, begun, stock, wrong = Random(seed), 0, 0, 0
    for number in range(rounds):
        alone = seat_rules.count_newcomers_tasks(number * tasks, tasks, 100, votes)
        begun += alone
        stock, begun = stock + begun // proven.PROOF, begun % proven.PROOF
        for _ in range(tasks - alone):
            if stock >= votes:
                if random.random() < rate:
                    stock -= votes
                else:
                    wrong += 1
    return wrong / (rounds * tasks)


def test_a_ring_of_any_size_that_always_returns_leaves_about_one_percent_wrong() -> None:
    bound = proven.compute_final_wrong(audit=0.2, replicas=3)
    assert bound == pytest.approx(0.0104, abs=1e-4)
    shares = [play_returning_ring(seed, rounds=20_000) for seed in range(5)]
    assert sum(shares) / len(shares) == pytest.approx(bound, rel=0.1)


def test_a_forecast_shows_the_votes_of_proven_ones_and_the_bound_of_a_long_job() -> None:
    spec = JobSpec.model_validate(JOB | {"replication": {"name": "proven"}, "rounds": 100})
    assumed = Assumed((Fraction(3, 10),), None, None, stake=0.0, saved=1.0, benefit=0.0)
    forecast = compute_forecast(spec, assumed)
    (row,) = forecast.rows
    assert row.wrong_per_task == pytest.approx(0.027 / (0.027 + 0.973))
    assert row.wrong_at_end == pytest.approx(0.8 * 0.027)
    assert forecast.returning == pytest.approx(0.0104, abs=1e-4)
    (spent,) = forecast.spent
    assert spent == pytest.approx(follow_stock(0.2, 3, 98, 0.3) * 0.98, rel=0.01)
    assert compute_forecast(JobSpec.model_validate(JOB), assumed).returning is None


def follow_stock(rate: float, votes: int, rounds: int, share: float) -> float:
    """The same share by small steps of time: each lie of a proven ring that is found takes a task's places from it."""
    steps, wrong, held = 2000, 0.0, share
    for _ in range(steps):
        lies = held**votes * rounds / steps
        wrong, held = wrong + (1 - rate) * lies, held - rate * lies
    return wrong / rounds


@pytest.mark.parametrize(("votes", "rounds", "share"), [(3, 20, 0.3), (3, 200, 0.5), (2, 50, 0.3)])
def test_a_proven_ring_leaves_wrong_what_following_it_in_time_gives(votes: int, rounds: int, share: float) -> None:
    found = proven.compute_stock_wrong(0.2, votes, rounds, share)
    assert found == pytest.approx(follow_stock(0.2, votes, rounds, share), rel=0.01)


def test_shorter_jobs_are_audited_more_and_no_lie_of_a_proven_ring_is_worth_it() -> None:
    rates = [proven.compute_audit_rate(3, rounds) for rounds in (5, 10, 20, 30, 48, 49, 200)]
    assert rates == [0.55, 0.5, 0.35, 0.3, 0.25, 0.2, 0.2]
    for rounds in range(3, 300):
        rate = proven.compute_audit_rate(3, rounds)
        assert proven.compute_stock_wrong(rate, 3, rounds - proven.LAST, 0.3) <= 0.01
    assert proven.compute_audit_rate(2) == 0.3


def test_a_job_s_plan_follows_its_rounds_unless_it_names_its_audits() -> None:
    def audited(rounds: int, **settings: object) -> float:
        asked = {"replication": {"name": "proven"} | settings, "rounds": rounds}
        return JobSpec.model_validate(JOB | asked).plan(BEST).audit

    assert [audited(20), audited(200), audited(20, audit=0.1), audited(200, replicas=2)] == [0.35, 0.2, 0.1, 0.3]
    assert JobSpec.model_validate(JOB | {"replication": {"name": "proven"}, "rounds": 20}).plan().audit == 1.0
