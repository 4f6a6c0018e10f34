"""API tokens: named, of one role, with an end; a token that was revoked or replaced is nobody at once."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from blake3 import blake3
from sqlalchemy import select
from typer.testing import CliRunner

from contracts import deployment as deployments
from gradmarket.cli import app as command
from requester.settings import RequesterSettings
from requester.store import leader_leases
from requester.store.tables import ApiToken
from tests.api.api_service import Service, serving
from tests.api.test_authorisation import DIGEST, JOB

CLAIM = {"auditor": "me", "determinism_class": "cpu"}


def made(service: Service, name: str, role: str, **asked: Any) -> str:
    answer = service.requester.post("/v1/tokens", json={"name": name, "role": role} | asked)
    assert answer.status_code == 201, answer.text
    token: str = answer.json()["token"]
    return token


def test_each_role_opens_its_doors_and_no_other(service: Service) -> None:
    data = b"what the roles of tokens are tried with"
    blob = f"/v1/blobs/blake3:{blake3(data).hexdigest()}"
    seen = {}
    for role in ("read", "submit", "audit", "admin"):
        client = service.client(made(service, f"roles-{role}", role))
        seen[role] = (
            client.put(blob, content=data).status_code,
            client.get(blob).status_code,
            client.post("/v1/jobs", json=JOB).status_code,
            client.post("/v1/audits/claim", json=CLAIM).status_code,
            client.get("/v1/tokens").status_code,
        )
    assert seen == {
        "read": (403, 404, 403, 403, 403),
        "submit": (201, 200, 201, 403, 403),
        "audit": (403, 200, 403, 200, 403),
        "admin": (201, 200, 201, 200, 200),
    }


def test_a_submit_token_steers_its_own_jobs_alone(service: Service) -> None:
    ours, theirs = (service.client(made(service, f"steers-{name}", "submit")) for name in ("ours", "theirs"))
    job = ours.post("/v1/jobs", json=JOB).json()["id"]
    refused = theirs.post(f"/v1/jobs/{job}/cancel")
    assert (refused.status_code, "another token" in refused.json()["detail"]) == (403, True)
    assert theirs.post(f"/v1/jobs/{job}/fund", json={"amount": "1000000000"}).status_code == 403
    assert ours.post(f"/v1/jobs/{job}/cancel").status_code == 200
    assert service.requester.post(f"/v1/jobs/{job}/cancel").status_code == 200


def test_a_submit_token_uploads_so_much_in_all_and_an_admin_s_any_number(
    anvil: Any, deployment: Any, tmp_path: Path
) -> None:
    deployments.write_deployment(deployment, tmp_path / "deployment.json")
    quota = 2**20
    with (
        serving(RequesterSettings(data=tmp_path, rpc=anvil.url, upload_quota=quota)) as service,
        service.client(made(service, "bob", "submit")) as bob,
    ):

        def put(by: httpx.Client, letter: bytes, length: int, **query: Any) -> httpx.Response:
            data = letter * length
            return by.put(f"/v1/blobs/blake3:{blake3(data).hexdigest()}", params=query, content=data)

        half = quota // 2
        assert put(bob, b"a", half).status_code == 201
        assert put(bob, b"a", half).status_code == 201, "what is there already costs nothing"
        assert put(bob, b"b", half, unserved=True).status_code == 201
        refused = put(bob, b"c", 1)
        assert refused.status_code == 413
        assert "bob has uploaded 1,048,576 bytes and may upload 1,048,576" in refused.json()["detail"]
        assert bob.head(f"/v1/blobs/blake3:{blake3(b'c').hexdigest()}").status_code == 404
        assert put(service.requester, b"d", 2 * quota).status_code == 201


def test_a_revoked_token_is_nobody_at_once(service: Service) -> None:
    client = service.client(made(service, "leaked", "admin"))
    assert client.get("/v1/tokens").status_code == 200
    assert client.delete("/v1/tokens/leaked").status_code == 204
    for answer in (client.get("/v1/tokens"), client.post("/v1/jobs", json=JOB)):
        assert answer.status_code == 401
        assert "this token is not known here" in answer.json()["detail"]
    for answer in (service.anyone.get("/v1/tokens"), service.anyone.post("/v1/jobs", json=JOB)):
        assert answer.status_code == 401
        assert "send `Authorization: Bearer <token>`" in answer.json()["detail"]
    assert service.requester.delete("/v1/tokens/leaked").status_code == 404


def test_a_token_ends_by_itself_and_its_name_is_free_again(service: Service) -> None:
    token = made(service, "short", "read", expires_in_s=3600)
    refused = service.requester.post("/v1/tokens", json={"name": "short", "role": "read"})
    assert (refused.status_code, refused.json()["remedy"]) == (
        409,
        "`gradmarket token revoke short` first, or take another name",
    )
    with service.context.begin() as work:
        row = work.session.scalars(select(ApiToken).where(ApiToken.subject == "short")).one()
        row.until = service.context.clock() - 1
    assert service.client(token).get(f"/v1/blobs/{DIGEST}").status_code == 401
    assert service.client(made(service, "short", "read")).get("/v1/tokens").status_code == 403


def test_neither_the_list_of_tokens_nor_the_database_has_a_secret(service: Service) -> None:
    token = made(service, "listed", "read", expires_in_s=None)
    answer = service.requester.get("/v1/tokens")
    assert token not in answer.text
    (row,) = [each for each in answer.json()["items"] if each["name"] == "listed"]
    assert (row["role"], row["expires_at"]) == ("read", None)
    with service.context.reading() as reader:
        rows = reader.session.scalars(select(ApiToken)).all()
    assert all(token.encode() not in each.hash and token not in each.subject for each in rows)


@pytest.mark.parametrize("name", ["requester", "own-auditor", "twice"])
def test_a_name_is_taken_once(service: Service, name: str) -> None:
    if name == "twice":
        made(service, "twice", "read")
    assert service.requester.post("/v1/tokens", json={"name": name, "role": "read"}).status_code == 409


def test_the_own_auditor_s_token_is_not_revoked_while_a_service_runs_it(service: Service) -> None:
    context = service.context
    leader_leases.renew_lease(context.begin, context.reading, leader_leases.AUDITOR, "first", context.clock(), 30.0)
    refused = service.requester.delete("/v1/tokens/own-auditor")
    leader_leases.release_lease(context.begin, leader_leases.AUDITOR, "first")
    assert (refused.status_code, "--auditor none" in refused.json()["detail"]) == (409, True)
    assert service.requester.delete("/v1/tokens/own-auditor").status_code == 404


def test_the_service_s_own_token_is_not_revoked_but_replaced(anvil: Any, deployment: Any, tmp_path: Path) -> None:
    deployments.write_deployment(deployment, tmp_path / "deployment.json")
    settings = RequesterSettings(data=tmp_path, rpc=anvil.url)
    with serving(settings) as first:
        old = first.token
        refused = first.requester.delete("/v1/tokens/requester")
        assert (refused.status_code, "keys/token" in refused.json()["detail"]) == (409, True)
    (tmp_path / "keys" / "token").unlink()
    with serving(settings) as second:
        assert second.token != old
        assert second.client(old).get("/v1/tokens").status_code == 401
        assert [each["name"] for each in second.requester.get("/v1/tokens").json()["items"]] == ["requester"]


def test_the_commands_make_list_and_end_a_token(service: Service) -> None:
    where = ["--market", service.url, "--token", service.token]
    run = CliRunner()
    made_ = run.invoke(command, ["token", "create", "pipeline", "--role", "submit", "--expires", "30d", *where])
    assert made_.exit_code == 0, made_.output
    secret = made_.stdout.strip().splitlines()[-1]
    assert service.client(secret).post("/v1/jobs", json=JOB).status_code == 201
    assert "submit" in run.invoke(command, ["token", "list", *where]).output
    assert run.invoke(command, ["token", "revoke", "pipeline", *where]).exit_code == 0
    assert service.client(secret).post("/v1/jobs", json=JOB).status_code == 401


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "x", "--role", "read", "--expires", "soon"], "write a number"),
        (["create", "x/y", "--role", "read"], "a token's name is one word"),
        (["revoke", "nobody"], "no token nobody"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_sentence(service: Service, arguments: list[str], said: str) -> None:
    found = CliRunner().invoke(command, ["token", *arguments, "--market", service.url, "--token", service.token])
    assert (found.exit_code, said in found.output) == (2, True), found.output
    assert "Traceback" not in found.output


@pytest.mark.parametrize("name", ["0x" + "ab" * 20, "0x" + "AB" * 20])
def test_no_token_is_named_like_a_wallet(service: Service, name: str) -> None:
    """Its uploads that broke off would be those of the worker with that address."""
    answer = service.requester.post("/v1/tokens", json={"name": name, "role": "submit"})
    assert answer.status_code == 409
    assert "address" in answer.json()["detail"]
