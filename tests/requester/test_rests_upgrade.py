"""What is kept of stalls by a database from before they belonged to a job."""

from pathlib import Path

from requester.store import schema
from requester.store.session import open_engine
from tests.databases import NewDatabase
from tests.requester.test_operators_upgrade import Old

BEFORE = "0008"


def test_stalls_go_to_the_job_in_which_they_were(new_database: NewDatabase, tmp_path: Path) -> None:
    database = open_engine(new_database(tmp_path))
    schema.downgrade_schema(database, BEFORE)
    with database.begin() as connection:
        old = Old(connection)
        old.add("workers", address="w", payout="w", operator="w", stalls=3, stalled_at=5.0, rests_until=99.0)
        for job in ("stalled", "earned", "honest"):
            old.add("jobs", id=job)
            old.add("tasks", id=job, job_id=job, offer_digest=job.encode())
            old.add("accounts", job_id=job, worker="w", earned=int(job == "earned"))
            state = "payable" if job == "honest" else "too_late"
            old.add("replicas", id=job, task_id=job, job_id=job, worker="w", state=state)
    schema.upgrade_schema(database)
    assert schema.list_schema_differences(database) == []
    with database.begin() as connection:
        assert Old(connection).rows("accounts", "job_id", "stalls", "stalled_at", "rests_until") == {
            ("stalled", 1, 5.0, 99.0),
            ("earned", 0, None, 0.0),
            ("honest", 0, None, 0.0),
        }
    database.dispose()
