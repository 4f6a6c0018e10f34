"""The auditor that the service runs itself: one of all processes that share a database, ended with it."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete

from gradmarket.market.errors import Conflict
from gradmarket.market.terms import AuditState, TaskState
from gradmarket.mistakes import CODE
from requester.context import Context
from requester.features import api_tokens
from requester.features.audits import audit_rows
from requester.features.audits.own_auditor import NAME, OwnAuditor, build_command, describe_own_auditor
from requester.store import identities, leader_leases
from requester.store.tables import ApiToken
from tests.lanes import FULL
from tests.patience import PATIENCE_S, wait_until
from tests.processes import is_running
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import MarketFixture

NewMarket = Callable[..., MarketFixture]
STAYS = [sys.executable, "-c", "import sys; print('here', file=sys.stderr, flush=True); sys.stdin.read()"]
FAILS = [sys.executable, "-c", "import sys; sys.exit('it cannot')"]


def started(keeper: OwnAuditor) -> int:
    wait_until(lambda: keeper.process is not None, "its start")
    assert keeper.process is not None
    return keeper.process.pid


def test_the_own_auditor_runs_until_the_service_ends(new_market: NewMarket, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with OwnAuditor(new_market().context, STAYS, said) as keeper:
        pid = started(keeper)
        wait_until(lambda: said.read_text() == "here\n", "its word")
        assert is_running(pid)
    assert not is_running(pid)


def test_one_of_two_services_runs_the_auditor_and_the_other_takes_over(new_market: NewMarket, tmp_path: Path) -> None:
    market = new_market()
    with OwnAuditor(market.context, STAYS, tmp_path / "first", "first") as first:
        started(first)
        other = OwnAuditor(market.another(), STAYS, tmp_path / "second", "second")
        assert other.look() > 1.0
        assert other.process is None
    other.look()
    assert other.process is not None
    other.end()


def test_the_own_auditor_is_started_again_and_its_last_line_is_logged(new_market: NewMarket, tmp_path: Path) -> None:
    keeper = OwnAuditor(new_market().context, FAILS, tmp_path / "said")
    keeper.look()
    assert keeper.process is not None
    keeper.process.wait()
    assert keeper.look() > 1.0
    assert keeper.process is None
    assert (tmp_path / "said").read_text() == "it cannot\n"
    keeper.look()
    assert keeper.process is not None
    keeper.end()


@FULL
def test_an_auditor_that_cannot_start_names_the_reason_last(new_market: NewMarket, tmp_path: Path) -> None:
    context = new_market().context
    command = build_command(
        replace(context, settings=context.settings.model_copy(update={"auditor": "tpu"})), "http://127.0.0.1:1"
    )
    assert command is not None
    keeper = OwnAuditor(context, command, tmp_path / "said")
    keeper.look()
    assert keeper.process is not None
    assert keeper.process.wait(PATIENCE_S) == CODE
    assert "tpu" in keeper._read_last_line()
    keeper.end()


def test_an_auditor_s_claims_are_released_at_its_next_start(new_market: NewMarket) -> None:
    market = new_market(replication={"name": "proven"})
    SimAuditor(market).claim()
    market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    before = SimAuditor(market, name=NAME)
    assert before.claim() is not None
    assert SimAuditor(market).claim() is None
    with market.context.begin() as work:
        audit_rows.release_claims(work, NAME)
    SimAuditor(market).work()
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]


def test_the_own_auditor_s_token_has_the_role_audit(new_market: NewMarket, tmp_path: Path) -> None:
    market = new_market(settings={"auditor": "cpu"})
    command = build_command(market.context, "http://127.0.0.1:1") or []
    keeper = OwnAuditor(market.context, STAYS, tmp_path / "said")
    keeper.look()
    keeper.end()
    token = Path(command[command.index("--token-file") + 1]).read_text().strip()
    assert token not in command
    with market.context.reading() as reader:
        row = identities.find_token(reader, token, market.clock())
    assert row is not None
    assert row.role == "audit"


def test_only_the_service_with_the_lease_has_a_live_auditor_token(new_market: NewMarket, tmp_path: Path) -> None:
    market = new_market(settings={"auditor": "cpu"})
    first, second = market.context, with_data(market.another(), tmp_path / "second")
    for context in (first, second):
        build_command(context, "http://127.0.0.1:1")
    one = OwnAuditor(first, STAYS, tmp_path / "1", "first")
    other = OwnAuditor(second, STAYS, tmp_path / "2", "second")
    one.look()
    other.look()
    assert (is_live(first), is_live(second)) == (True, False)
    one.end()
    leader_leases.release_lease(first.begin, leader_leases.AUDITOR, "first")
    other.look()
    assert (is_live(first), is_live(second)) == (False, True)
    other.end()


def test_each_start_makes_its_token_live(new_market: NewMarket, tmp_path: Path) -> None:
    context = new_market().context
    keeper = OwnAuditor(context, STAYS, tmp_path / "said")
    keeper.look()
    with context.begin() as work:
        work.session.execute(delete(ApiToken))
    assert not is_live(context)
    keeper.end()
    keeper.look()
    assert is_live(context)
    keeper.end()


def test_the_own_auditor_s_token_is_revoked_only_where_no_service_runs_it(
    new_market: NewMarket, tmp_path: Path
) -> None:
    market = new_market()
    context = market.context
    keeper = OwnAuditor(context, STAYS, tmp_path / "said", "first")
    keeper.look()
    with context.begin() as work, pytest.raises(Conflict, match="--auditor none"):
        api_tokens.revoke_token(work, identities.AUDITOR, market.clock())
    assert is_live(context)
    keeper.end()
    leader_leases.release_lease(context.begin, leader_leases.AUDITOR, "first")
    with context.begin() as work:
        assert api_tokens.revoke_token(work, identities.AUDITOR, market.clock())
    assert not is_live(context)


def with_data(context: Context, data: Path) -> Context:
    """The context as of a service with another data folder."""
    return replace(context, settings=context.settings.model_copy(update={"data": data}))


def is_live(context: Context) -> bool:
    path = context.settings.data / "keys" / "auditor"
    token = path.read_text().strip() if path.exists() else ""
    with context.reading() as reader:
        return identities.find_token(reader, token, context.clock()) is not None


def test_a_service_without_its_own_auditor_describes_the_votes(new_market: NewMarket) -> None:
    market = new_market(settings={"auditor": "none"})
    assert build_command(market.context, "http://127.0.0.1:1") is None
    assert "votes" in describe_own_auditor("none")


@FULL
def test_one_for_a_card_that_is_not_there_is_not_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert describe_own_auditor("cuda").startswith("none can start for cuda: ")
    assert describe_own_auditor("cuda:1").startswith("none can start for cuda:1: ")
    assert describe_own_auditor("auto").startswith("this machine checks answers")
