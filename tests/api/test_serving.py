"""How the service listens."""

import asyncio
import socket
from pathlib import Path

import httpx

from requester.serving import KEEP_ALIVE_S, open_listener
from requester.settings import RequesterSettings


def accepted() -> socket.socket:
    """The service's end of a connection to it, as uvicorn's event loop gets it."""

    async def connect() -> socket.socket:
        got: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()

        def made(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.set_result(writer.get_extra_info("socket"))

        with open_listener("127.0.0.1", 0) as door:
            async with await asyncio.start_server(made, sock=door):
                _, writer = await asyncio.open_connection(*door.getsockname())
                found = await got
                ours = socket.socket(fileno=socket.dup(found.fileno()))
                writer.close()
                return ours

    return asyncio.run(connect())


def test_the_second_part_of_an_answer_does_not_wait_until_the_first_is_acknowledged() -> None:
    with accepted() as ours:
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_service_keeps_an_idle_connection_longer_than_httpx_does() -> None:
    """A server that closes as the client sends resets the connection, and the request is lost."""
    assert (httpx.Limits().keepalive_expiry or 0) < KEEP_ALIVE_S < RequesterSettings(data=Path()).header_s


def test_an_accepted_connection_has_tcp_keep_alive_within_a_minute() -> None:
    """Or a NAT forgets it, and nobody hears that the other is gone."""
    with accepted() as ours:
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 60
