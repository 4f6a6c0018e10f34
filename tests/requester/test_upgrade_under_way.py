"""An upgrade while jobs run: refused where rules differ, and a job goes on across the revisions since 0.1.0."""

import re
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

import migrations
from gradmarket.market.errors import Refused
from gradmarket.market.release import PROTOCOL, find_release_difference
from gradmarket.market.terms import JobState
from requester.store import schema
from requester.store.schema import check_unfinished
from requester.store.session import open_engine
from tests.databases import NewDatabase
from tests.kit.reflected_rows import ReflectedRows
from tests.kit.schemas import downgrade_schema, list_schema_differences
from tests.lanes import FULL, leave_to_full
from tests.requester.books import check_books

RELEASED = "0034"
"""The revision of 0.1.0."""


@pytest.mark.parametrize(
    ("theirs", "fix"),
    [(PROTOCOL - 1, "bring the market to the release of this worker"), (PROTOCOL + 1, "bring this worker to the")],
)
def test_a_release_difference_names_the_older_side_to_upgrade(theirs: int, fix: str) -> None:
    said, remedy = find_release_difference(theirs, "the market", "this worker") or ("", "")
    assert said == f"the market is of another release (protocol {theirs}, this worker has {PROTOCOL})"
    assert remedy.startswith(fix)
    assert find_release_difference(PROTOCOL, "the market", "this worker") is None


@pytest.mark.parametrize("state", leave_to_full(["running", "paused", "awaiting_funds"]))
def test_unfinished_jobs_of_another_release_are_named_and_nothing_is_changed(
    new_database: NewDatabase, tmp_path: Path, state: str
) -> None:
    database = open_engine(new_database(tmp_path))
    with database.begin() as connection:
        for number in range(7):
            ReflectedRows(connection).add("jobs", id=f"job-{number}", state=state, protocol=PROTOCOL - 1)
    with pytest.raises(Refused, match=re.escape("job-0, job-1, job-2, job-3, job-4 and 2 more")) as refused:
        check_unfinished(database)
    assert "cancel" in refused.value.remedy
    with database.begin() as connection:
        connection.execute(text("UPDATE jobs SET state = 'finished'"))
    check_unfinished(database)
    database.dispose()


def test_a_database_that_is_up_to_date_runs_no_revision(
    new_database: NewDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert schema.find_newest_revision() == ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head()
    database = open_engine(new_database(tmp_path))
    schema.upgrade_schema(database)
    monkeypatch.setattr(schema, "import_module", lambda _name: pytest.fail("it imports alembic"))
    schema.upgrade_schema(database)
    database.dispose()


@pytest.mark.parametrize("revision", ["0012", "9999"])
def test_a_database_of_an_unknown_revision_is_refused_and_nothing_is_changed(
    new_database: NewDatabase, tmp_path: Path, revision: str
) -> None:
    database = open_engine(new_database(tmp_path))
    with database.begin() as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))
    with pytest.raises(Refused, match=f"the database is of the revision {revision}, which") as refused:
        schema.upgrade_schema(database)
    assert "0.1.0" in refused.value.remedy
    with database.begin() as connection:
        assert ReflectedRows(connection).rows("alembic_version", "version_num") == {(revision,)}
    database.dispose()


@pytest.mark.parametrize(("protocol", "passes"), [(PROTOCOL, True), (PROTOCOL - 1, False), (PROTOCOL + 1, False)])
def test_unfinished_jobs_go_on_under_their_own_rules_alone(
    new_database: NewDatabase, tmp_path: Path, protocol: int, passes: bool
) -> None:
    database = open_engine(new_database(tmp_path))
    with database.begin() as connection:
        ReflectedRows(connection).add("jobs", id="a", state="running", protocol=protocol)
        ReflectedRows(connection).add("jobs", id="b", state="draft", protocol=0)
    if passes:
        check_unfinished(database)
    else:
        with pytest.raises(Refused, match="a; nothing was changed"):
            check_unfinished(database)
    database.dispose()


def test_a_new_database_has_nothing_to_finish(tmp_path: Path) -> None:
    database = open_engine(f"sqlite:///{tmp_path / 'new.sqlite'}")
    check_unfinished(database)
    database.dispose()


@FULL
def test_a_job_under_way_goes_on_across_the_revisions_since_the_first_release(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=3)
    workers = [market.worker() for _ in range(3)]
    market.until(lambda: len(market.rounds()) == 2, *workers)
    engine = market.context.sessions.kw["bind"]
    downgrade_schema(engine, RELEASED)
    check_unfinished(engine)
    schema.upgrade_schema(engine)
    assert list_schema_differences(engine) == []
    market.play(*workers)
    assert market.state() == JobState.FINISHED
    check_books(market)
