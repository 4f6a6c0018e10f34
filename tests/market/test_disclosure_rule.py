"""When an answer is published."""

import pytest

from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import TaskState


@pytest.mark.parametrize("audited", [False, True])
@pytest.mark.parametrize("state", list(TaskState))
def test_an_answer_is_published_where_its_round_stands_or_nothing_can_take_it_back(
    state: TaskState, audited: bool
) -> None:
    assert lifecycle.may_publish_answer(state, diverged=True, number=2, first_open=None, audited=audited)
    assert lifecycle.may_publish_answer(state, diverged=True, number=2, first_open=3, audited=audited)
    assert not lifecycle.may_publish_answer(state, diverged=True, number=2, first_open=2, audited=audited)
    kept = state in (TaskState.ACCEPTED, TaskState.FINAL)
    assert lifecycle.may_publish_answer(state, diverged=False, number=2, first_open=2, audited=audited) == (
        kept and not audited
    )
