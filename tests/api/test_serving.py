"""How connections are taken, before anything is said on them."""

import socket

from gradmarket.requester.edge.serving import listener


def test_no_answer_waits_for_an_acknowledgement() -> None:
    with listener("127.0.0.1", 0) as door:
        door.listen()
        with socket.create_connection(door.getsockname()), door.accept()[0] as taken:
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
