"""EIP-4361: one nonce, one service, one chain, one wallet; and the payout address that it signed."""

import pytest
from eth_account import Account


def test_a_wallet_signs_in_with_a_cold_payout_address(service) -> None:  # type: ignore[no-untyped-def]
    account, cold = Account.create(), Account.create().address
    statement = f"Work for gradmarket. Pay out to {cold}."
    answer = service.knock(account, service.siwe(account, statement=statement))
    assert answer.status_code == 201
    assert answer.json()["payout"] == cold
    assert service.anyone.get(f"/v1/workers/{account.address}").json()["payout"] == cold


def test_a_worker_gets_gas_and_no_tokens_on_a_local_chain(service) -> None:  # type: ignore[no-untyped-def]
    address, _ = service.worker()
    assert service.context.ledger.gas_money(address) == 10**18
    assert service.context.ledger.balance(address) == 0


def test_a_nonce_is_good_once(service) -> None:  # type: ignore[no-untyped-def]
    account = Account.create()
    message = service.siwe(account)
    assert service.knock(account, message).status_code == 201
    replayed = service.knock(account, message)
    assert replayed.status_code == 422
    assert "nonce" in replayed.json()["detail"]


def test_a_made_up_nonce_another_service_or_chain_is_refused(service) -> None:  # type: ignore[no-untyped-def]
    account = Account.create()
    for changed in (
        {"nonce": "a" * 32},
        {"domain": "evil.example"},
        {"uri": "http://evil.example"},
        {"chain_id": 1},
        {"expiration_time": "2020-01-01T00:00:00Z"},
        {"not_before": "2999-01-01T00:00:00Z"},
        {"statement": "I agree to anything."},
        {"statement": "Work for gradmarket. Pay out to 0x12. "},
    ):
        assert service.knock(account, service.siwe(account, **changed)).status_code == 422, changed


def test_another_wallets_signature_is_refused(service) -> None:  # type: ignore[no-untyped-def]
    victim, thief = Account.create(), Account.create()
    answer = service.knock(thief, service.siwe(victim))
    assert answer.status_code == 422
    assert service.anyone.get(f"/v1/workers/{victim.address}").status_code == 404


@pytest.mark.parametrize("signature", ["11" * 64 + "1b", "00" * 65, "ff" * 65, "00" * 64 + "1c"])
def test_a_malformed_signature_is_refused(service, signature: str) -> None:  # type: ignore[no-untyped-def]
    text = service.siwe(Account.create()).text()
    answer = service.anyone.post("/v1/session", json={"message": text, "signature": "0x" + signature})
    assert answer.status_code == 422, answer.text


def test_earnings_and_vouchers_are_the_workers_own(service) -> None:  # type: ignore[no-untyped-def]
    address, worker = service.worker()
    _, other = service.worker()
    assert worker.get(f"/v1/workers/{address}/earnings").json() == {"items": [], "next": None}
    assert worker.get(f"/v1/workers/{address}/vouchers").json() == {"items": [], "next": None}
    assert other.get(f"/v1/workers/{address}/earnings").status_code == 403
    assert service.anyone.get(f"/v1/workers/{address}/vouchers").status_code == 401
