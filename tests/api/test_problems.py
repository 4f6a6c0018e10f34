"""Every problem's `type` leads to its meaning and its remedy."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.client.client_errors import parse_problem
from gradmarket.commands.reference import build_errors_page
from gradmarket.market.errors import MarketError
from gradmarket.mistakes import describe_error
from requester.api import problem_kinds
from tests.api.api_service import Service

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == build_errors_page(), "run: gradmarket errors > docs/errors.md"
    assert CliRunner().invoke(app, ["errors"]).stdout == build_errors_page()
    told = json.loads(CliRunner().invoke(app, ["errors", "--json"]).stdout)
    assert [kind["code"] for kind in told] == [kind.code for kind in problem_kinds.list_problem_kinds()]


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status"),
    [
        ("GET", "/v1/jobs/none", None, "not_found", 404),
        ("POST", "/v1/jobs", {"name": 3}, "invalid_request", 422),
        ("POST", "/v1/jobs", {}, "invalid_request", 422),
        ("DELETE", "/v1/jobs", None, "wrong_method", 405),
        ("GET", "/v1/jobs?cursor=" + "a" * 9000, None, "long_address", 414),
        ("GET", "/nowhere", None, "not_found", 404),
    ],
)
def test_a_problem_leads_to_its_kind(
    service: Service, method: str, path: str, body: object, kind: str, status: int
) -> None:
    answer = service.requester.request(method, path, json=body)
    told = answer.json()
    assert (answer.status_code, told["status"], told["type"]) == (status, status, f"/errors#{kind}")
    assert told["remedy"]
    place, _, fragment = told["type"].partition("#")
    assert f'id="{fragment}"' in service.requester.get(place).text


def test_every_kind_is_on_the_page(service: Service) -> None:
    shown = re.findall(r'<tr id="([a-z_]+)">', service.requester.get("/errors").text)
    assert shown == [kind.code for kind in problem_kinds.list_problem_kinds()]


def subclasses(kind: type[MarketError]) -> list[type[MarketError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in subclasses(below))]


def test_every_error_has_a_kind_and_every_status_one() -> None:
    for error in subclasses(MarketError):
        if error.__module__.startswith(("gradmarket.market", "requester")):
            assert problem_kinds.of_error(error.__new__(error)).status >= 400
    kinds = {status: problem_kinds.of_status(status).code for status in (401, 418, 502)}
    assert kinds == {401: "no_token", 418: "broken_request", 502: "fault"}


def test_a_command_prints_the_service_s_remedy() -> None:
    body = json.dumps({"status": 422, "detail": "no", "remedy": "do this"}).encode()
    assert describe_error(parse_problem(422, "", body), "gradmarket job submit").fix == "do this"
    assert describe_error(parse_problem(404, "", body), "gradmarket job show").fix.startswith("look for it"), (
        "the command's own words"
    )
    for absent in ("no task t in job j", "no parameters after round 9 of job j"):
        problem = parse_problem(404, "", json.dumps({"detail": absent, "remedy": "do this"}).encode())
        assert describe_error(problem, "gradmarket job show").fix == "do this"
