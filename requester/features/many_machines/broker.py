"""Redis as Celery's broker, through outages: reconnects at once, and leaves no worker waiting for nothing.

This corrects two behaviours of kombu 5.7. It waits for 2 to 30 s between attempts to connect. And a message whose
acknowledgement fails still counts among those that a worker may hold: once all places are lost so, the worker fetches
no more, and never notices that Redis is gone, nor that it is back.
"""

from typing import Any, Final

from celery.app.amqp import AMQP
from kombu.connection import Connection
from kombu.transport import redis, virtual

RETRY: Final = {"interval_start": 0.05, "interval_step": 0.05, "interval_max": 0.5}
"""Seconds between attempts to connect."""


_errors = redis.get_redis_error_classes()  # type: ignore[no-untyped-call]
LOST: Final[tuple[type[Exception], ...]] = _errors.connection_errors
"""The exceptions that are raised where Redis does not answer."""


class Places(redis.QoS):
    """Frees a message's place even if Redis does not get the acknowledgement; then the message comes again."""

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]
        except LOST:
            self._give_back(delivery_tag)
            raise

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        try:
            super().reject(delivery_tag, requeue)  # type: ignore[no-untyped-call]
        except LOST:
            self._give_back(delivery_tag)
            raise

    def _give_back(self, delivery_tag: str) -> None:
        virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]


class Channel(redis.Channel):
    QoS = Places


class Transport(redis.Transport):
    Channel = Channel


class Prompt(Connection):
    def get_transport_cls(self) -> type[Transport]:
        return Transport

    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        return super().ensure_connection(*args, **(RETRY | kwargs))  # type: ignore[no-untyped-call]


class PromptAMQP(AMQP):  # type: ignore[misc]
    """For `Celery(amqp=…)`."""

    Connection = Prompt
