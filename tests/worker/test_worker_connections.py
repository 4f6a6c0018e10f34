"""The transport of downloads and polls, against a server that says what it is told to, byte by byte."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest

from gradmarket.compute.clocked import ClockedTransport
from gradmarket.market.wire import ANSWER_WITHIN

SMALL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Script = Callable[[socket.socket], None]


@contextmanager
def scripted(*scripts: Script) -> Iterator[str]:
    """Gives the address of a server that runs a script for each connection, in turn, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for script in scripts:
                with suppress(OSError):
                    there, _ = listening.accept()
                    with there:
                        script(there)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=10)


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(transport=ClockedTransport(), timeout=5.0) as http:
        yield http


def answering(answer: bytes, times: int = 1) -> Script:
    def script(there: socket.socket) -> None:
        for _ in range(times):
            there.recv(1 << 16)
            there.sendall(answer)

    return script


def test_a_connection_is_used_again_until_the_other_side_hangs_up(client: httpx.Client) -> None:
    with scripted(answering(SMALL, 2), answering(SMALL)) as url:
        assert [client.get(url).text for _ in range(2)] == ["ok"] * 2
        (kept,) = client._transport._idle.values()  # type: ignore[attr-defined]
        (connection,) = kept
        until = time.monotonic() + 10
        while not connection.has_news and time.monotonic() < until:
            time.sleep(0.01)
        assert client.get(url).text == "ok", "the third request needs a new connection"


def test_a_body_that_was_not_read_to_its_end_spoils_no_other_answer(client: httpx.Client) -> None:
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000)
    with scripted(answering(long), answering(SMALL)) as url:
        with client.stream("GET", url) as response:
            assert next(response.iter_raw())
        assert client.get(url).text == "ok"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\1\2\r\n\r\n",
        b"HTTP/2.7 maybe\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_whole_answer_is_an_error_of_httpx(client: httpx.Client, answer: bytes) -> None:
    with scripted(answering(answer)) as url, pytest.raises(httpx.TransportError):
        client.get(url)


def test_bytes_of_no_alphabet_in_a_header_break_nothing(client: httpx.Client) -> None:
    with scripted(answering(b"HTTP/1.1 404 \xe9\xff\r\nx: \xe9\xff\r\nContent-Length: 0\r\n\r\n")) as url:
        answer = client.get(url)
        assert (answer.status_code, answer.headers.raw[0]) == (404, (b"x", b"\xe9\xff"))


def test_a_body_comes_in_chunks_and_as_it_comes(client: httpx.Client) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with scripted(answering(head + b"2\r\nok\r\n3\r\nay!\r\n0\r\n\r\n", 2)) as url:
        assert [client.get(url).text, client.get(url).text] == ["okay!"] * 2


def test_an_answer_before_the_end_of_a_request_is_heard(client: httpx.Client) -> None:
    def refusing(there: socket.socket) -> None:
        there.recv(100)
        there.sendall(b"HTTP/1.1 413 Too Long\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        there.shutdown(socket.SHUT_WR)
        assert sum(iter(lambda: len(there.recv(1 << 20)), 0)) > 0

    with scripted(refusing) as url:
        body = (bytes(1 << 20) for _ in range(8))
        assert client.post(url, content=body, headers={"content-length": str(8 << 20)}).status_code == 413


def test_the_error_of_a_body_is_the_body_s_own(client: httpx.Client) -> None:
    def body() -> Iterator[bytes]:
        yield b"a"
        raise FileNotFoundError("the payload is gone")

    with scripted(answering(SMALL)) as url, pytest.raises(FileNotFoundError):
        client.post(url, content=body(), headers={"content-length": "2"})


@pytest.mark.parametrize("drip", [b"H", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"])
def test_an_answer_that_drips_ends_with_the_clock(client: httpx.Client, drip: bytes) -> None:
    def dripping(there: socket.socket) -> None:
        there.recv(1 << 16)
        there.sendall(drip)
        for _ in range(200):
            there.sendall(b"x")
            time.sleep(0.02)

    with scripted(dripping) as url, pytest.raises(httpx.TransportError):
        client.get(url, extensions={ANSWER_WITHIN: 0.3})


def test_who_closes_it_ends_a_read_in_another_thread() -> None:
    asked = threading.Event()

    def silent(there: socket.socket) -> None:
        there.recv(1 << 16)
        asked.set()
        there.recv(1)

    failed: list[Exception] = []

    def ask() -> None:
        try:
            transport.handle_request(httpx.Request("GET", url))
        except httpx.TransportError as error:
            failed.append(error)

    transport = ClockedTransport()
    with scripted(silent) as url:
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert asked.wait(10)
        transport.close()
        thread.join(timeout=10)
        assert len(failed) == 1
