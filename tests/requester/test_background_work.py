"""Background work goes on after an error that it did not expect."""

import asyncio
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from requester.app import rerun_after_errors
from requester.features.many_machines.queue import STAGES, BrokerNotifier
from tests.patience import PATIENCE_S


def test_background_work_that_fails_begins_again_until_it_ends() -> None:
    begun: list[int] = []

    async def work() -> None:
        begun.append(len(begun))
        if len(begun) < 3:
            raise ZeroDivisionError

    asyncio.run(rerun_after_errors("test", work, 0.0))
    assert begun == [0, 1, 2]


def test_a_notification_that_no_broker_can_take_is_not_the_last_one() -> None:
    """The thread that sends ended with the first error that was not a broker's, and no stage was notified any more."""
    sent: list[Iterable[str]] = []
    two = threading.Semaphore(0)

    def send_task(_task: str, arguments: Iterable[str], **_options: Any) -> None:
        sent.append(arguments)
        two.release()
        raise ValueError("no task can be encoded")

    notifier, topic = BrokerNotifier(SimpleNamespace(send_task=send_task)), min(STAGES)  # type: ignore[arg-type]
    for _ in range(2):
        notifier([topic])
        assert two.acquire(timeout=PATIENCE_S)
    assert sent == [(topic,), (topic,)]
