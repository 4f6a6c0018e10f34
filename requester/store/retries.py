"""Retries a transaction that clashed with another, so that no caller sees the clash."""

import random
import time
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm.exc import StaleDataError

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS: Final = 6
CLASHES: Final = {"40001", "40P01", "23505"}
"""PostgreSQL: serialization failure, deadlock, and a row that another transaction inserted meanwhile."""


def retry_on_conflict(act: Callable[P, T]) -> Callable[P, T]:
    """Decorates `act` to run again after a clash with another transaction; a failed `act` must leave nothing behind."""

    @wraps(act)
    def again(*args: P.args, **kwargs: P.kwargs) -> T:
        for attempt in range(1, ATTEMPTS):
            try:
                return act(*args, **kwargs)
            except (DBAPIError, StaleDataError) as error:
                if not is_clash(error):
                    raise
                time.sleep(random.uniform(0.0, 0.01 * 2**attempt))
        return act(*args, **kwargs)

    return again


def is_clash(error: DBAPIError | StaleDataError) -> bool:
    """Returns whether the failed transaction may succeed when it is repeated."""
    return isinstance(error, StaleDataError) or getattr(error.orig, "sqlstate", None) in CLASHES
