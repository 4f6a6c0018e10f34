"""The API's description in a browser: by files of its own origin alone, whose policy admits no others."""

import re
import socket

import httpx
import pytest

from tests.api.api_service import Service


def test_docs_are_drawn_by_files_of_the_own_origin(service: Service) -> None:
    page = service.anyone.get("/docs")
    policy = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
    linked = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(linked) == 4
    for link in linked:
        assert link.startswith("/assets/")
        assert httpx.get(service.url + link).status_code == 200
    assert "<script>" not in page.text
    assert '+ "/openapi.json"' in httpx.get(f"{service.url}/assets/docs.js").text


def test_redoc_leads_to_the_same_page(service: Service) -> None:
    answer = httpx.get(f"{service.url}/redoc")
    assert (answer.status_code, answer.headers["location"]) == (308, "/docs")


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/assets/page.css", "/v1/health", "/v1/jobs/none", "/nowhere", "/v1/tokens"]
)
def test_no_answer_s_type_is_guessed(service: Service, path: str) -> None:
    assert httpx.get(service.url + path).headers.get_list("x-content-type-options") == ["nosniff"]


def test_bytes_that_are_no_http_get_400_and_nosniff(service: Service) -> None:
    with socket.create_connection(service.url.removeprefix("http://").split(":")) as raw:
        raw.sendall(b"nonsense\r\n\r\n")
        answer = raw.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"nosniff" in answer
