"""Which jobs name a blob: found along an index however many jobs there are, and kept by an older database's upgrade."""

from pathlib import Path
from typing import Any

from sqlalchemy import event, text

from gradmarket.market.terms import Address, Digest
from requester.store import blob_needs, visibility
from requester.store.session import open_engine, sessions_of
from requester.store.tables import Job, JobBlob
from requester.store.work import begin_work, open_reader
from tests.databases import NewDatabase
from tests.kit.reflected_rows import ReflectedRows
from tests.lanes import FULL

JOBS = 2_000
NOBODY = Address("0x" + "0" * 40)
WANTED = Digest("blake3:" + "a" * 64)
LARGE = ("job_blobs", "rounds", "jobs")


@FULL
def test_a_blob_s_readers_are_found_along_an_index_among_many_jobs(new_database: NewDatabase, tmp_path: Path) -> None:
    database = open_engine(new_database(tmp_path))
    with database.begin() as connection:
        old = ReflectedRows(connection)
        for number in range(JOBS):
            old.add("jobs", id=f"{number}", visibility="requester", created_at=float(number))
            old.add("job_blobs", digest=f"d{number}", job_id=f"{number}", part="publication.parameters")
            old.add(
                "rounds",
                job_id=f"{number}",
                number=0,
                parameters=f"d{number}",
                updated=f"u{number}",
                optimizer_state=f"s{number}",
            )
        connection.execute(text("ANALYZE"))
    asked: list[tuple[str, Any]] = []
    event.listen(database, "before_cursor_execute", lambda _c, _k, said, values, *_: asked.append((said, values)))
    with open_reader(sessions_of(database)) as reader:
        assert not visibility.load_access(reader, WANTED).to_anybody
        assert visibility.load_access(reader, WANTED, NOBODY).to_worker
        assert not visibility.load_access(reader, Digest("d7"), NOBODY).to_worker
        assert not blob_needs.names_blob(reader, WANTED)
        assert not blob_needs.needs_parameters(reader, WANTED, "7", 3, 10)
        assert not blob_needs.needs_update(reader, WANTED, "7", 3)
    with database.connect() as connection:
        explain = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
        plans = [
            connection.exec_driver_sql(f"{explain} {said}", values)
            for said, values in list(asked)
            if said.startswith("SELECT")
        ]
        lines = [str(line) for plan in plans for line in plan]
    assert len(plans) >= 6
    whole = [line for line in lines if "SCAN" in line or "Seq Scan" in line]
    assert [line for line in whole if any(name in line for name in LARGE)] == []
    assert any("job_blobs" in line for line in lines)
    database.dispose()


def test_a_job_s_rows_follow_what_it_names(new_database: NewDatabase, tmp_path: Path) -> None:
    database = open_engine(new_database(tmp_path))
    sessions = sessions_of(database)
    with database.begin() as connection:
        ReflectedRows(connection).add("jobs", id="a", state="running")
    for parameters in ("first", "second", None):
        with begin_work(sessions) as work:
            work.get_one(Job, "a").publication = {"document": "d", "parameters": parameters}
        with open_reader(sessions) as reader:
            rows = {(row.part, row.digest) for row in reader.session.query(JobBlob)}
        expected = {("publication.document", "d"), ("publication.parameters", parameters)}
        assert rows == {(part, digest) for part, digest in expected if digest}
    database.dispose()
