"""The tables of states: every state is reachable and has an exit, and nothing else is a step."""

import itertools

import pytest

from gradmarket.market.errors import IllegalTransition
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import (
    AccusationState,
    AuditState,
    BatchState,
    CalibrationState,
    JobState,
    ReplicaState,
    RoundState,
    TaskState,
)

FIRST = {
    JobState: JobState.DRAFT,
    RoundState: RoundState.OPEN,
    TaskState: TaskState.OPEN,
    ReplicaState: ReplicaState.LEASED,
    BatchState: BatchState.PREPARED,
    AccusationState: AccusationState.DUE,
    AuditState: AuditState.DUE,
    CalibrationState: CalibrationState.GATHERING,
}


@pytest.mark.parametrize("entity", list(lifecycle.TABLES))
def test_every_state_is_in_its_table_and_reachable(entity) -> None:  # type: ignore[no-untyped-def]
    table = lifecycle.TABLES[entity]
    assert set(table) == set(entity)
    reached, edge = {FIRST[entity]}, {FIRST[entity]}
    while edge:
        edge = set().union(*(table[state] for state in edge)) - reached
        reached |= edge
    assert reached == set(entity)


@pytest.mark.parametrize("entity", list(lifecycle.TABLES))
def test_only_steps_of_the_table_are_allowed(entity) -> None:  # type: ignore[no-untyped-def]
    for old, new in itertools.product(entity, entity):
        if new in lifecycle.TABLES[entity][old]:
            assert lifecycle.check_transition(old, new) is new
        else:
            with pytest.raises(IllegalTransition, match=f"{old} -> {new}"):
                lifecycle.check_transition(old, new)


def test_a_replica_is_paid_only_after_it_agreed_or_an_audit_proved_it_right() -> None:
    before = {state: {old for old, after in lifecycle.REPLICA.items() if state in after} for state in lifecycle.PAID}
    assert before == {
        ReplicaState.PAYABLE: {ReplicaState.AGREE, ReplicaState.REJECTED},
        ReplicaState.DIVERGED: {ReplicaState.AGREE},
    }


def test_states_in_flight_are_not_final_and_all_others_are() -> None:
    for state in ReplicaState:
        assert lifecycle.is_final_state(state) != (state in lifecycle.IN_FLIGHT)
