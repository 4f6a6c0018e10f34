"""A data folder of before operators were proven: claims tell on who made them alone, and a key keeps its record."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, MetaData, Table, insert, select

from requester.store import schema
from requester.store.session import open_engine

NewDatabase = Callable[[Path], str]
BEFORE = "0002"


class Old:
    """Rows of the tables as they were; what a case does not name is empty."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.tables = connection, MetaData()
        self.tables.reflect(connection)

    def add(self, name: str, **given: Any) -> None:
        table: Table = self.tables.tables[name]
        blank = {c.name: _blank(c) for c in table.columns if not c.nullable and c.name != "id"}
        self.connection.execute(insert(table).values(blank | given))

    def rows(self, name: str, *columns: str) -> set[tuple[Any, ...]]:
        table = self.tables.tables[name]
        return set(map(tuple, self.connection.execute(select(*(table.c[column] for column in columns)))))


def _blank(column: Any) -> Any:
    kind = column.type.python_type
    return {str: "", bytes: b"", bool: False, dict: {}}.get(kind, 0)


def test_bars_go_to_who_lied_and_records_stay_with_their_keys(new_database: NewDatabase, tmp_path: Path) -> None:
    database = open_engine(new_database(tmp_path))
    schema.downgrade_schema(database, BEFORE)
    with database.begin() as connection:
        old = Old(connection)
        old.add("jobs", id="j")
        for wallet, payout in (("liar", "victim"), ("honest", "cold"), ("victim", "victim"), ("alone", "alone")):
            old.add("workers", address=wallet, payout=payout, operator=payout)
        for task, wallet, payout, root in (("t", "liar", "victim", "wrong"), ("u", "alone", "alone", "wrong")):
            old.add(
                "tasks", id=task, job_id="j", index=ord(task), offer_digest=task.encode(), uploader=f"{task}-{wallet}"
            )
            rest = {"task_id": task, "job_id": "j", "state": "payable", "payout": payout, "operator": payout}
            old.add("replicas", id=f"{task}-{wallet}", worker=wallet, root=root, **rest)
            audit = {"state": "failed", "root": "right", "ended_at": 5.0, "determinism_class": "cpu"}
            old.add("audits", task_id=task, job_id="j", **audit)
            old.add("scores", task_id=task, job_id="j", operator=payout, others=[], trusted_others=[])
        vindicated = {"task_id": "t", "job_id": "j", "state": "payable", "payout": "cold", "operator": "cold"}
        old.add("replicas", id="t-honest", worker="honest", root="right", **vindicated)
        record = {"determinism_class": "cpu", "failed": 1, "failed_at": 5.0}
        old.add("reputations", operator="victim", evidence=0.0, **record)
        old.add("reputations", operator="alone", evidence=0.0, **record)
        old.add("reputations", operator="cold", determinism_class="cpu", evidence=9.0)
    schema.upgrade_schema(database)
    assert schema.list_schema_differences(database) == []
    with database.begin() as connection:
        now = Old(connection)
        assert now.rows("reputations", "operator", "evidence", "failed_at") == {
            ("victim", 0.0, None),
            ("liar", 0.0, 5.0),
            ("alone", 0.0, 5.0),
            ("cold", 9.0, None),
        }
        assert all(operator == wallet for wallet, operator in now.rows("workers", "address", "operator"))
        assert all(operator == wallet for wallet, operator in now.rows("replicas", "worker", "operator"))
        assert now.rows("scores", "task_id", "operator") == {("t", "liar"), ("u", "alone")}
    database.dispose()
