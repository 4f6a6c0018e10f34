"""Claims of rounds: computing a round proves it, and reading public data proves nothing."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gradmarket.market.features import claims as claim_messages
from gradmarket.market.features.claims import build_claim
from gradmarket.market.job_parts import AuditSpec
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Digest, Hash, JobState, Role, blob_digest
from gradmarket.market.wire.poll import OfferFields
from requester.app import create_app
from requester.features import api_tokens
from requester.features.claims.claim_rows import RoundClaimRow
from tests.kit.behaviour import HONEST, scaled
from tests.lanes import FULL
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import CLASS, MarketFixture
from tests.requester.market_workers import SimWorker, key_of

NewMarket = Callable[..., MarketFixture]
LIE = scaled(3.0)
CLAIMS = {"audit": {"probability": 1e-12, "claims": 2}}


@pytest.fixture
def market(new_market: NewMarket) -> MarketFixture:
    made = new_market(rounds=2, tasks_per_round=2, **CLAIMS)
    for _ in range(3):
        made.worker()
    return made


@pytest.fixture
def door(market: MarketFixture) -> Iterator[TestClient]:
    """Yields the client of a signed-in wallet: strangers send nothing."""
    with market.context.begin() as work:
        secret, _row = api_tokens.create_token(work, "somebody", Role.READ, None, market.clock())
    with TestClient(create_app(market.context, nullcontext)) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        yield client


def fetch_claims(market: MarketFixture, door: TestClient, number: int = 1) -> dict[str, Any]:
    return dict(door.get(f"/v1/jobs/{market.job}/rounds/{number}/claims").json())


def payloads(market: MarketFixture, number: int = 1) -> list[bytes]:
    """Returns an auditor's own results: the round's merged answers, from their offers."""
    computer = SimWorker(market, key_of("outside"), HONEST, CLASS)
    merged = sorted((task for task in market.tasks() if task.used and task.round == number), key=lambda one: one.index)
    return [bytes(computer.compute(OfferFields.of(task.offer))) for task in merged]


def claim(
    market: MarketFixture, door: TestClient, key: PrivateKey, claim: int, digest: Digest, number: int = 1
) -> tuple[int, dict[str, Any]]:
    struct = build_claim(market.the_job().chain_job or 0, number, claim, digest)
    signature = "0x" + sign_digest(key, digest_struct(market.context.domain, struct)).hex()
    body = {"number": claim, "digest": digest, "signature": signature}
    answer = door.put(f"/v1/jobs/{market.job}/rounds/{number}/claims", json=body)
    return answer.status_code, dict(answer.json())


def digest_under(shown: dict[str, Any], answers: list[bytes]) -> Digest:
    return claim_messages.digest_answers(Hash(bytes.fromhex(shown["key"][2:])), answers)


def test_only_an_auditor_that_computed_the_round_can_claim_it(market: MarketFixture, door: TestClient) -> None:
    honest, copier, second = (key_of(name) for name in ("honest", "copier", "second"))
    market.play()
    assert market.state() == JobState.FINISHED
    first, answers = fetch_claims(market, door), payloads(market)
    assert (first["items"], first["open"]) == ([], 0)
    withheld = {row.digest for row in market.all(RoundClaimRow)}
    assert not any(digest in str(first) for digest in withheld)
    own = digest_under(first, answers)
    assert claim(market, door, honest, 0, own)[0] == 200
    after = fetch_claims(market, door)
    assert [(one["auditor"], one["digest"]) for one in after["items"]] == [(address_of(honest), own)]
    assert (after["open"], after["key"] != first["key"]) == (1, True)

    roots = [blob_digest(answer).encode() for answer in answers]
    copies = [(0, own), (1, own), (1, digest_under(after, roots)), (1, blob_digest(b"".join(answers)))]
    assert [claim(market, door, copier, number, digest)[0] for number, digest in copies] == [409] * 4
    assert fetch_claims(market, door) == after, "nothing was told of the withheld digest"

    assert claim(market, door, second, 1, digest_under(after, answers))[0] == 200
    done = fetch_claims(market, door)
    assert [one["auditor"] for one in done["items"]] == [address_of(honest), address_of(second)]
    assert (done["open"], done["key"]) == (None, None)
    assert claim(market, door, honest, 0, own)[0] == 200, "said again it changes nothing"
    assert fetch_claims(market, door) == done


@FULL
def test_an_auditor_claims_a_round_once(market: MarketFixture, door: TestClient) -> None:
    market.play()
    answers, key = payloads(market), key_of("auditor")
    assert claim(market, door, key, 0, digest_under(fetch_claims(market, door), answers))[0] == 200
    status, problem = claim(market, door, key, 1, digest_under(fetch_claims(market, door), answers))
    assert (status, fetch_claims(market, door)["open"]) == (409, 1)
    assert "has claimed round 1 already" in problem["detail"]
    assert claim(market, door, key_of("another"), 1, digest_under(fetch_claims(market, door), answers))[0] == 200


@FULL
def test_a_copied_signature_names_nobody_else(market: MarketFixture, door: TestClient) -> None:
    """Another's signed answer claims the round for its signer, not for the sender."""
    market.play()
    shown, answers = fetch_claims(market, door), payloads(market)
    claim(market, door, key_of("honest"), 0, digest_under(shown, answers))
    (item,) = fetch_claims(market, door)["items"]
    body = {name: item[name] for name in ("number", "digest", "signature")}
    assert door.put(f"/v1/jobs/{market.job}/rounds/1/claims", json=body).status_code == 200
    assert door.put(f"/v1/jobs/{market.job}/rounds/0/claims", json=body).status_code == 409
    assert fetch_claims(market, door)["items"] == [item]


@FULL
def test_claims_of_a_running_job_or_an_absent_round_are_refused(market: MarketFixture, door: TestClient) -> None:
    market.until(lambda: market.all(RoundClaimRow))
    path = f"/v1/jobs/{market.job}/rounds/0/claims"
    early = door.get(path)
    assert early.status_code == 409
    assert early.json()["detail"] == (
        f"Its state does not allow this step: job {market.job} goes on: its rounds are claimed once it has ended"
    )
    assert claim(market, door, key_of("early"), 0, Digest("blake3:" + "0" * 64), number=0)[0] == 409
    market.play()
    assert door.get(path).status_code == 200
    assert door.get(f"/v1/jobs/{market.job}/rounds/7/claims").status_code == 404
    assert door.get(f"/v1/jobs/{'f' * 16}/rounds/0/claims").status_code == 404


@FULL
def test_a_round_that_is_merged_again_has_the_digests_of_its_new_answers(new_market: NewMarket) -> None:
    market = new_market(rounds=2, audit={"probability": 1.0, "claims": 1})
    liars = [market.worker(LIE), market.worker(LIE)]
    market.worker()
    market.until(lambda: market.all(RoundClaimRow), *market.workers)
    (lie,) = [row.digest for row in market.all(RoundClaimRow) if row.round == 0]
    SimAuditor(market).work()
    assert market.events("audit_failed")
    assert not market.all(RoundClaimRow), f"{len(liars)} lied, and the round is taken back"
    market.worker(), market.worker()
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    rows = [row for row in market.all(RoundClaimRow) if row.round == 0]
    assert [row.digest != lie for row in rows] == [True]
    assert rows[0].digest == claim_messages.digest_answers(
        claim_messages.derive_claim_key(market.the_job().secret, 0, 0), payloads(market, 0)
    )


def test_a_job_without_claims_has_the_digest_that_it_had() -> None:
    assert "claims" not in AuditSpec(probability=0.5).model_dump(mode="json")


@pytest.mark.parametrize("said", [{"probability": "0.5"}, {"planted": "0.05"}, {"claims": "2"}, {"claims": 2.0}])
def test_a_word_is_no_number(said: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="valid"):
        AuditSpec.model_validate({"probability": 0.5} | said)


KEYS = st.binary(min_size=32, max_size=32)


@given(KEYS, KEYS, st.lists(st.binary(max_size=40), min_size=1, max_size=4))
def test_the_digest_depends_on_key_and_bytes(one: bytes, other: bytes, answers: list[bytes]) -> None:
    digest = claim_messages.digest_answers(Hash(one), answers)
    assert digest == claim_messages.digest_answers(Hash(one), [b"".join(answers)])
    assert (digest == claim_messages.digest_answers(Hash(other), answers)) == (one == other)
    assert digest != claim_messages.digest_answers(Hash(one), [*answers, b"!"])
    assert digest != blob_digest(b"".join(answers))
