"""The tests of test_odd_words and test_surrogates, which use PostgreSQL, on a service with SQLite."""

from collections.abc import Iterator

import pytest

from contracts import deployment as deployments
from requester.settings import RequesterSettings
from tests.api.api_service import Service, serving
from tests.api.test_odd_words import (  # noqa: F401
    test_a_cursor_of_another_kind_is_not_ours,
    test_a_list_refuses_a_cursor_of_another_type,
    test_a_poll_with_half_a_surrogate_pair_is_refused,
    test_no_word_in_a_body_is_an_error_of_ours,
)
from tests.api.test_surrogates import places, schema, test_no_text_is_an_error_of_ours  # noqa: F401
from tests.databases import new_sqlite
from tests.lanes import FULL

pytestmark = FULL


@pytest.fixture(scope="module")
def here(anvil, deployment, tmp_path_factory) -> Iterator[Service]:  # type: ignore[no-untyped-def]
    data = tmp_path_factory.mktemp("texts")
    deployments.write_deployment(deployment, data / "deployment.json")
    with serving(RequesterSettings(data=data, rpc=anvil.url, database=new_sqlite(data))) as made:
        yield made
