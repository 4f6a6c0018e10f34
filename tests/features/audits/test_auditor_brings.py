"""An auditor that found none of a task's answers brings its own gradient, through the service's door."""

from collections.abc import Callable
from threading import Event
from typing import Any, cast

import pytest

from gradmarket import auditor as auditor_module
from gradmarket.auditor import Auditor, Done
from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import ServiceProblem
from gradmarket.compute.executor import Executor
from gradmarket.compute.machine import MachineLimits
from gradmarket.market.terms import JobState, Role, TaskState
from gradmarket.market.wire.audit_messages import AuditWork
from gradmarket.sealing import OpenedAnswers
from graphdoc.encoding import Bytes
from requester.store import identities
from tests.features.audits.test_audits import clean_parameters
from tests.features.proven.test_proven import agree_once, open_job
from tests.kit.behaviour import scaled
from tests.lanes import leave_to_full
from tests.patience import wait_for
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import CLASS, PRICE, MarketFixture
from tests.requester.upload_door import served

NewMarket = Callable[..., MarketFixture]


class Machine:
    """A machine of the workers' class, which computes the fixture's answers."""

    def determinism_class(self) -> str:
        return CLASS

    def close(self) -> None:
        """There is no child."""


class FixtureAuditor(Auditor):
    """The auditor of the package, whose steps are the fixture's."""

    def __init__(self, market: RequesterClient, computer: SimAuditor, opened: OpenedAnswers | None = None) -> None:
        limits = MachineLimits(max_flops=1e9, max_memory=2**30)
        machine = cast(Any, Machine()), cast(Any, None), limits
        super().__init__(computer.name, market, *machine, computer.sealing, opened)
        self._computer = computer
        self.computed = 0
        self.heard = Event()

    def _build_executor(self) -> Executor:
        return cast(Executor, None)

    def _renew_claim(self, work: AuditWork) -> None:
        super()._renew_claim(work)
        self.heard.set()

    def _compute_answer(self, work: AuditWork, first: bool) -> tuple[Bytes, float]:
        """Takes until the service has heard that the auditor is there."""
        self.computed += 1
        self.heard.clear()
        wait_for(self.heard)
        return self._computer.computer.compute(work.offer), 1.0


@pytest.mark.parametrize("restarted", leave_to_full([False, True]))
def test_the_round_goes_on_with_the_auditors_gradient(
    new_market: NewMarket, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was started anew meanwhile computes it once more, and its class has an auditor all the while."""
    monkeypatch.setattr(auditor_module, "RENEWED_EVERY_S", 0.01)
    market, here = open_job(new_market, rounds=2)
    honest = agree_once(market, here)
    liar = market.worker(scaled(3.0))
    market.until(lambda: market.task().state == TaskState.REFERRED)
    with market.context.begin() as work:
        token = identities.issue_token(work, Role.AUDIT, "the auditor", None, market.clock())
    with served(market) as url, RequesterClient(url, token) as client:
        auditor = FixtureAuditor(client, here)
        found = auditor.turn()
        assert isinstance(found, Done)
        assert found.runs == 2
        market.drive()
        assert market.task().state == TaskState.UPLOADING
        with pytest.raises(ServiceProblem) as other:
            client.bring_payload(market.task().id, b"other bytes")
        assert other.value.status == 409
        auditor = FixtureAuditor(client, here) if restarted else auditor
        before = auditor.computed
        brought = auditor.turn()
        assert brought is not None
        assert (brought.root, auditor.computed - before) == (found.root, int(restarted))
        with pytest.raises(ServiceProblem) as again:
            client.bring_payload(market.task().id, b"other bytes")
        assert again.value.status == 404
        market.drive()
    assert market.state() == JobState.FINISHED
    assert market.final_parameters() == clean_parameters(new_market, rounds=2)
    assert market.earned() == {honest.address: PRICE}
    assert liar.held
    check_books(market)
