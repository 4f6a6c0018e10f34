"""Long bodies arrive unchanged in any pieces, both ways; and the connection goes on by the rules of HTTP."""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from blake3 import blake3
from structlog.testing import capture_logs

from requester.api.blob_routes import Served
from requester.api.streams import AT_ONCE, BLOCK
from tests.api.api_service import Service
from tests.patience import PATIENCE_S, dawdle

PIECE = Served.chunk_size
HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
SIZES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, (AT_ONCE + 3) * BLOCK + 17]


def made(length: int) -> tuple[bytes, str]:
    data = random.Random(length).randbytes(length)
    return data, "blake3:" + blake3(data).hexdigest()


def head(service: Service, digest: str, length: int, *more: str) -> bytes:
    lines = [f"PUT /v1/blobs/{digest} HTTP/1.1", "Host: x", f"Authorization: Bearer {service.token}"]
    return "\r\n".join([*lines, f"Content-Length: {length}", *more, "", ""]).encode()


@contextmanager
def connected(service: Service) -> Iterator[socket.socket]:
    url = httpx.URL(service.url)
    with socket.create_connection((url.host, url.port), timeout=PATIENCE_S) as connection:
        yield connection


def statuses(connection: socket.socket, count: int) -> list[str]:
    """Of the next answers."""
    heard = b""
    while (found := heard.count(b"HTTP/1.1 ")) < count or not heard.endswith((b"}", b"\r\n\r\n")):
        got = connection.recv(65536)
        assert got, (found, heard[-300:])
        heard += got
    return [part[:3].decode() for part in heard.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("length", SIZES)
def test_a_body_is_whole_whether_it_comes_at_once_or_a_piece_at_a_time(service: Service, length: int) -> None:
    data, digest = made(length)
    with connected(service) as connection:
        for pieces in (1, 7):
            connection.sendall(head(service, digest, length))
            for piece in (data[part * length // pieces : (part + 1) * length // pieces] for part in range(pieces)):
                connection.sendall(piece)
                dawdle(0.005 * (pieces > 1))
            assert statuses(connection, 1) == ["201"]
            assert service.requester.get(f"/v1/blobs/{digest}").content == data


@pytest.mark.parametrize("length", SIZES)
def test_pipelined_requests_behind_a_body_are_answered_in_order(service: Service, length: int) -> None:
    data, digest = made(length)
    upload = head(service, digest, length) + data
    with connected(service) as connection:
        connection.sendall(upload + HEALTH + upload + HEALTH + HEALTH)
        assert statuses(connection, 5) == ["201", "200", "201", "200", "200"]


def test_a_body_refused_halfway_is_drained_and_the_next_request_is_answered(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a full disk does it, with most of the body still to come."""
    data, digest = made(8 * BLOCK)

    def full(*_arguments: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("requester.blobs.disk.Incoming.write", full)
    with (
        connected(service) as connection,
        capture_logs() as logged,
    ):  # a traceback with megabytes takes its time to draw
        connection.sendall(head(service, digest, len(data)) + data[: 4 * BLOCK])
        assert statuses(connection, 1) == ["503"]
        assert "storage failed" in [line["event"] for line in logged]
        connection.sendall(data[4 * BLOCK :] + HEALTH)
        assert statuses(connection, 1) == ["200"]


def test_a_body_of_nobody_is_refused_before_it_comes(service: Service) -> None:
    data, digest = made(4 * BLOCK)
    with connected(service) as connection:
        connection.sendall(head(service, digest, len(data)).replace(service.token.encode(), b"nobody"))
        assert statuses(connection, 1) == ["401"]
        connection.sendall(data + HEALTH)
        assert statuses(connection, 1) == ["200"]


def test_an_upload_that_expects_100_continue_gets_it(service: Service) -> None:
    data, digest = made(3 * BLOCK)
    with connected(service) as connection:
        connection.sendall(head(service, digest, len(data), "Expect: 100-continue"))
        assert statuses(connection, 1) == ["100"]
        connection.sendall(data)
        assert statuses(connection, 1) == ["201"]


def test_a_request_with_connection_close_is_closed_after_its_answer(service: Service) -> None:
    data, digest = made(3 * BLOCK)
    with connected(service) as connection:
        connection.sendall(head(service, digest, len(data), "Connection: close") + data)
        assert statuses(connection, 1) == ["201"]
        assert connection.recv(1) == b""


def test_chunks_of_no_declared_length_are_a_body_too(service: Service) -> None:
    data, digest = made(2 * BLOCK)
    with connected(service) as connection:
        connection.sendall(by_chunks(service, digest, data) + HEALTH)
        assert statuses(connection, 2) == ["201", "200"]


def test_a_declared_length_beside_chunks_is_no_request(service: Service) -> None:
    """Behind a proxy, two readings of a request's end would allow one client to forge another's requests."""
    data, digest = made(1000)
    with connected(service) as connection, connection.makefile("rb") as heard:
        connection.sendall(by_chunks(service, digest, data, "Content-Length: 1000"))
        assert heard.read().startswith(b"HTTP/1.1 400 ")
    assert not service.context.blobs.has(digest)


def by_chunks(service: Service, digest: str, data: bytes, *more: str) -> bytes:
    plain = head(service, digest, 0, *more, "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    return plain + b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


@pytest.mark.parametrize("length", [0, 1, PIECE - 1, PIECE, 3 * PIECE + 17, 24 * PIECE])
def test_a_file_goes_out_whole_and_the_connection_goes_on(service: Service, length: int) -> None:
    data, digest = made(length)
    assert service.requester.put(f"/v1/blobs/{digest}", content=data).status_code == 201
    ask = f"GET /v1/blobs/{digest} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.token}\r\n\r\n".encode()
    with connected(service) as connection, connection.makefile("rb") as heard:
        connection.sendall(ask + HEALTH + ask)
        for expected in (data, None, data):
            assert heard.readline() == b"HTTP/1.1 200 OK\r\n"
            headers = dict(line.strip().lower().split(b": ") for line in iter(heard.readline, b"\r\n"))
            body = heard.read(int(headers[b"content-length"]))
            assert expected is None or body == expected


def test_a_client_that_disconnects_during_a_download_disturbs_no_other(service: Service) -> None:
    data, digest = made(24 * PIECE)
    service.context.blobs.put(data)
    ask = f"GET /v1/blobs/{digest} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.token}\r\n\r\n".encode()
    for _ in range(3):
        with connected(service) as connection:
            connection.sendall(ask)
            assert connection.recv(65536)
    assert service.requester.get(f"/v1/blobs/{digest}").content == data
