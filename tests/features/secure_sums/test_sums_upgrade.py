"""Sums of rounds that were written by a release without starts of their own."""

from gradmarket.market.terms import Hash
from gradmarket.market.wire.poll import hash_of
from requester.features.secure_sums.secure_tables import SecureSum
from requester.store import schema
from requester.store.work import begin_work, open_reader


def test_sums_from_before_have_the_parameters_of_their_rounds(new_floor) -> None:  # type: ignore[no-untyped-def]
    market = new_floor()
    row = market.rounds()[0]
    with begin_work(market.context.sessions) as work:
        work.add(
            SecureSum(
                id=f"{market.job}-0",
                job_id=market.job,
                round=row.number,
                attempt=0,
                step=1,
                start=hash_of(row.parameters),
                beacon=Hash(b"b" * 32),
                expected=3,
            )
        )
    with open_reader(market.context.sessions) as reader:
        database = reader.session.get_bind()
    schema.downgrade_schema(database, "0020")
    schema.upgrade_schema(database)
    (found,) = market.all(SecureSum)
    assert found.start == hash_of(row.parameters)
    assert schema.list_schema_differences(database) == []
