"""`python -m tests.goldens` writes all goldens anew: for a change that is meant."""

from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from requester.app import create_app
from requester.store.session import open_engine
from tests.databases import new_sqlite, postgres_server
from tests.goldens import write_golden
from tests.goldens.reflected import reflect_schema
from tests.goldens.traces import JOBS, trace_job
from tests.kit.unchained import unchained
from tests.requester.market_fixture import MarketFixture


def describe_api(folder: Path) -> dict[str, Any]:
    """Returns the service's OpenAPI document."""
    market = MarketFixture(folder, unchained(), new_sqlite)
    try:
        return create_app(market.context, nullcontext).openapi()
    finally:
        market.close()


def main() -> None:
    for name in JOBS:
        with TemporaryDirectory() as folder:
            write_golden(f"transactions_{name}", trace_job(name, Path(folder)))
    with TemporaryDirectory() as folder:
        write_golden("openapi", describe_api(Path(folder)))
    with TemporaryDirectory() as folder:
        write_golden("schema_sqlite", reflect_schema(open_engine(new_sqlite(Path(folder)))))
    with postgres_server() as server:
        write_golden("schema_postgresql", reflect_schema(open_engine(server.new())))


if __name__ == "__main__":
    main()
