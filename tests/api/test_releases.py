"""Workers and auditors of another release at the service's door: one sentence, and nothing of theirs is heard."""

import pytest

from gradmarket.market.release import HEADER, PROTOCOL
from gradmarket.network import own_version
from tests.api.api_service import Service

POLL = ("POST", "/v1/work/poll", {"determinism_class": "cpu", "capacity": 1, "wait_s": 0})
CLAIM = ("POST", "/v1/audits/claim", {"auditor": "mine", "determinism_class": "cpu"})


@pytest.mark.parametrize(("method", "path", "body"), [POLL, CLAIM, ("GET", "/v1/work/states", None)])
def test_another_release_is_refused_with_the_release_to_install(
    service: Service, method: str, path: str, body: dict[str, object] | None
) -> None:
    auditor = path.startswith("/v1/audits")
    client, who = (service.requester, "this auditor") if auditor else (service.worker()[1], "this worker")
    ask = lambda said: client.request(method, path, json=body, headers={} if said is None else {HEADER: said})  # noqa: E731
    older, newer = ask(f"{PROTOCOL - 1}/0.0.9"), ask(f"{PROTOCOL + 1}/9.9.9")
    for answer, theirs in ((older, PROTOCOL - 1), (newer, PROTOCOL + 1)):
        assert answer.status_code == 409
        assert answer.json()["type"] == "/errors#other_release"
        assert f"{who} is of another release (protocol {theirs}, the market has {PROTOCOL})" in answer.json()["detail"]
    assert older.json()["remedy"] == f"bring {who} to the release of the market, gradmarket {own_version()}"
    assert newer.json()["remedy"] == f"bring the market to the release of {who}, gradmarket 9.9.9"
    for same in (None, f"{PROTOCOL}/0.1.7", "nonsense"):
        answer = ask(same)
        assert answer.status_code == 200
        assert answer.headers[HEADER] == f"{PROTOCOL}/{own_version()}"


def test_any_release_reads_earnings_and_vouchers(service: Service) -> None:
    address, client = service.worker()
    for what in ("earnings", "vouchers"):
        answer = client.get(f"/v1/workers/{address}/{what}", headers={HEADER: f"{PROTOCOL - 1}/0.0.9"})
        assert answer.status_code == 200
