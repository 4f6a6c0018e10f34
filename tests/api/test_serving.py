"""How the service listens."""

import asyncio
import socket

from gradmarket.requester.edge.serving import listener


def accepted() -> socket.socket:
    """The service's end of a connection to it, as uvicorn's event loop gets it."""

    async def connect() -> socket.socket:
        got: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()

        def made(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.set_result(writer.get_extra_info("socket"))

        with listener("127.0.0.1", 0) as door:
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
