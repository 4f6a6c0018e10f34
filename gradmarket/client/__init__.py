"""The market's API from outside: one transport and one set of errors for requesters, auditors and workers."""

from gradmarket.client.async_client import AsyncRequesterClient
from gradmarket.client.requester_client import RequesterClient

__all__ = ["AsyncRequesterClient", "RequesterClient"]
