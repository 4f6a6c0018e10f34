"""The auditor that the service runs itself: one of all processes that share a database, ended with it."""

import sys
from collections.abc import Callable
from pathlib import Path

from gradmarket.market.terms import AuditState, TaskState
from requester.own_auditor import NAME, OwnAuditor, build_command, describe_own_auditor
from requester.store import audits, identities
from tests.patience import wait_until
from tests.processes import is_running
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import MarketFixture

NewFloor = Callable[..., MarketFixture]
STAYS = [sys.executable, "-c", "import sys; print('here', file=sys.stderr, flush=True); sys.stdin.read()"]
FAILS = [sys.executable, "-c", "import sys; sys.exit('it cannot')"]


def started(keeper: OwnAuditor) -> int:
    wait_until(lambda: keeper.process is not None, "its start")
    assert keeper.process is not None
    return keeper.process.pid


def test_it_runs_until_the_service_ends(new_floor: NewFloor, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with OwnAuditor(new_floor().context, STAYS, said) as keeper:
        pid = started(keeper)
        wait_until(lambda: said.read_text() == "here\n", "its word")
        assert is_running(pid)
    assert not is_running(pid)


def test_of_two_services_one_runs_it_and_the_other_takes_over(new_floor: NewFloor, tmp_path: Path) -> None:
    market = new_floor()
    with OwnAuditor(market.context, STAYS, tmp_path / "first", "first") as first:
        started(first)
        other = OwnAuditor(market.another(), STAYS, tmp_path / "second", "second")
        assert other.look() > 1.0
        assert other.process is None
    other.look()
    assert other.process is not None
    other.end()


def test_it_is_started_again_where_it_ends_and_its_last_word_is_logged(new_floor: NewFloor, tmp_path: Path) -> None:
    keeper = OwnAuditor(new_floor().context, FAILS, tmp_path / "said")
    keeper.look()
    assert keeper.process is not None
    keeper.process.wait()
    assert keeper.look() > 1.0
    assert keeper.process is None
    assert (tmp_path / "said").read_text() == "it cannot\n"
    keeper.look()
    assert keeper.process is not None
    keeper.end()


def test_what_it_had_in_hand_is_free_at_its_next_start(new_floor: NewFloor) -> None:
    market = new_floor(replication={"name": "proven"})
    SimAuditor(market).claim()
    market.worker()
    market.until(lambda: market.task().state == TaskState.REFERRED)
    before = SimAuditor(market, name=NAME)
    assert before.claim() is not None
    assert SimAuditor(market).claim() is None
    with market.context.begin() as work:
        audits.release_claims(work, NAME)
    SimAuditor(market).work()
    assert [audit.state for audit in audits_of(market)] == [AuditState.PASSED]


def test_its_token_may_audit_and_no_more(new_floor: NewFloor, tmp_path: Path) -> None:
    market = new_floor(settings={"auditor": "cpu"})
    command = build_command(market.context, "http://127.0.0.1:1") or []
    token = Path(command[command.index("--token-file") + 1]).read_text().strip()
    with market.context.reading() as reader:
        row = identities.find_token(reader, token, market.clock())
    assert row is not None
    assert row.role == "audit"
    assert token not in command


def test_without_one_it_says_so(new_floor: NewFloor) -> None:
    market = new_floor(settings={"auditor": "none"})
    assert build_command(market.context, "http://127.0.0.1:1") is None
    assert "votes" in describe_own_auditor("none")
