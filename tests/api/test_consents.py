"""A payout key's consent, by EIP-712: it makes its address a worker's operator, until it is withdrawn."""

from dataclasses import replace
from typing import Any

import pytest
from eth_account import Account
from eth_keys.datatypes import PrivateKey

from gradmarket.market import signing
from gradmarket.market.messages import Payout, SignedConsent, Withdrawal
from gradmarket.market.terms import Address, Hash
from requester.api.sign_in_routes import CONTRACTS


def key_of(account: Any) -> PrivateKey:
    return PrivateKey(bytes(account.key))


def signed(service: Any, message: Any, account: Any, **domain: Any) -> dict[str, Any]:
    made = signing.sign_digest(
        key_of(account), signing.digest_struct(replace(service.context.domain, **domain), message)
    )
    return {"nonce": message.nonce, "signature": f"0x{made.hex()}"}


def knock(service: Any, worker: Any, payout: Any, consent: dict[str, Any] | None) -> Any:
    statement = f"Work for gradmarket. Pay out to {payout.address}."
    return service.knock(worker, service.siwe(worker, statement=statement), consent=consent)


def fetch_operator(service: Any, worker: Any) -> tuple[str, bool]:
    seen = service.anyone.get(f"/v1/workers/{worker.address}").json()
    return seen["operator"], seen["proven"]


def test_an_unsigned_payout_claim_is_paid_there_and_proves_nothing(service: Any) -> None:
    worker, victim = Account.create(), Account.create()
    assert knock(service, worker, victim, None).json()["payout"] == victim.address
    assert fetch_operator(service, worker) == (worker.address, False)


def test_a_consent_makes_one_operator_of_several(service: Any) -> None:
    payout, workers = Account.create(), [Account.create(), Account.create()]
    for worker in workers:
        consent = signed(service, SignedConsent(worker.address, payout.address, 7), payout)
        assert knock(service, worker, payout, consent).status_code == 201
        assert fetch_operator(service, worker) == (payout.address, True)
    assert knock(service, workers[0], payout, None).status_code == 201
    assert fetch_operator(service, workers[0]) == (workers[0].address, False), "without it, it leaves"
    assert fetch_operator(service, workers[1]) == (payout.address, True)


def test_a_worker_that_is_paid_itself_needs_no_consent(service: Any) -> None:
    worker = Account.create()
    assert knock(service, worker, worker, None).status_code == 201
    assert fetch_operator(service, worker) == (worker.address, True)


def test_a_consent_for_anything_else_is_refused(service: Any) -> None:
    worker, payout, other = (Account.create() for _ in range(3))
    mine = SignedConsent(worker.address, payout.address, 7)
    for consent in (
        signed(service, mine, other),
        signed(service, mine, worker),
        signed(service, replace(mine, worker=other.address), payout),
        signed(service, replace(mine, payout=other.address), payout),
        signed(service, mine, payout) | {"nonce": 8},
        signed(service, mine, payout, instance=Hash(b"i" * 32)),
        signed(service, mine, payout, chain_id=1),
        signed(service, mine, payout, contract=Address(other.address)),
        signed(service, Payout(worker.address, payout.address, 7), payout),
        signed(service, Withdrawal(worker.address, payout.address, 7), payout),
    ):
        answer = knock(service, worker, payout, consent)
        assert answer.status_code == 422, consent
        assert CONTRACTS in answer.json()["detail"]
    assert service.anyone.get(f"/v1/workers/{worker.address}").status_code == 404


@pytest.mark.parametrize("nonce", [0, -1, 2**63, "x"])
def test_a_nonce_is_a_positive_number(service: Any, nonce: Any) -> None:
    worker = Account.create()
    assert knock(service, worker, worker, {"nonce": nonce, "signature": "0x" + "00" * 65}).status_code == 422


def test_a_consent_is_taken_back_by_the_payout_key_alone_and_not_used_again(service: Any) -> None:
    worker, payout, other = (Account.create() for _ in range(3))
    consent = signed(service, SignedConsent(worker.address, payout.address, 7), payout)
    door = f"/v1/workers/{worker.address}/withdrawal"
    _, anybody = service.worker()

    def withdraw(message: Withdrawal, account: Any) -> int:
        said = {"payout": message.payout, **signed(service, message, account)}
        return int(anybody.post(door, json=said).status_code)

    back = Withdrawal(worker.address, payout.address, 7)
    assert knock(service, worker, payout, consent).status_code == 201
    assert withdraw(back, other) == 422
    assert withdraw(replace(back, payout=other.address), other) == 200, "another key's consents, of which none came"
    assert fetch_operator(service, worker) == (payout.address, True)
    assert withdraw(back, payout) == 200
    assert fetch_operator(service, worker) == (worker.address, False)
    assert withdraw(back, payout) == 404, "it takes nothing back a second time"
    refused = knock(service, worker, payout, consent)
    assert refused.status_code == 422
    assert "withdrew this consent" in refused.json()["detail"]
    newer = signed(service, SignedConsent(worker.address, payout.address, 8), payout)
    assert knock(service, worker, payout, newer).status_code == 201
    assert fetch_operator(service, worker) == (payout.address, True)


def test_a_consent_is_taken_back_before_anybody_used_it(service: Any) -> None:
    """Whoever was given one keeps it for later; one key has several spellings."""
    payout, came, comes = Account.create(), Account.create(), Account.create()
    assert knock(service, came, came, None).status_code == 201
    _, anybody = service.worker()
    for worker, spell in ((came, str), (comes, str.lower)):
        consent = signed(service, SignedConsent(worker.address, payout.address, 7), payout)
        said = {
            "payout": spell(payout.address),
            **signed(service, Withdrawal(worker.address, payout.address, 7), payout),
        }
        answer = anybody.post(f"/v1/workers/{worker.address}/withdrawal", json=said)
        assert (answer.status_code, answer.json()["operator"]) == (200, worker.address)
        refused = knock(service, worker, payout, consent)
        assert refused.status_code == 422
        assert "withdrew this consent" in refused.json()["detail"]
        newer = signed(service, SignedConsent(worker.address, payout.address, 8), payout)
        assert knock(service, worker, payout, newer).status_code == 201
        assert fetch_operator(service, worker) == (payout.address, True)
