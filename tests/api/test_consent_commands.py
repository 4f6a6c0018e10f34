"""`gradmarket wallet consent` and the worker's sign-in against a real service: given, brought, taken back."""

import json
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.market.errors import Refused
from gradmarket.market.messages import SignedConsent, Withdrawal
from gradmarket.market.terms import Address
from worker import wallet
from worker.features.consents import payout_consents
from worker.protocol.client import Credentials, MarketClient
from worker.wallet import Wallet


def run_consent(service: Any, folder: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["wallet", "consent", *words, "--market", service.url, "--data", str(folder)])


def last(told: Any) -> str:
    """Returns the command's last line; the service logs here too."""
    assert told.exit_code == 0, told.output
    return str(told.stdout.splitlines()[-1])


def operator_of(service: Any, worker: Address) -> str:
    return str(service.anyone.get(f"/v1/workers/{worker}").json()["operator"])


def sign_in(service: Any, worker: Wallet, payout: Address, *files: Path) -> None:
    market = MarketClient(service.url, lambda _seconds: False)
    facts = market.facts()
    consent = payout_consents.find_consent_for_market(files, facts, worker.address, payout)
    market.identify(Credentials(worker, payout, facts.chain_id, consent))
    assert market.bearer()
    market.close()


def test_a_consent_is_given_brought_and_taken_back(service: Any, tmp_path: Path) -> None:
    cold, worker = wallet.create_wallet(tmp_path / "cold", None), wallet.create_wallet(tmp_path / "worker", None)
    file = tmp_path / "consent.json"
    file.write_text(last(run_consent(service, cold.path.parent, "give", worker.address)))
    sign_in(service, worker, cold.address)
    assert operator_of(service, worker.address) == worker.address
    sign_in(service, worker, cold.address, file)
    assert operator_of(service, worker.address) == cold.address
    back = run_consent(service, cold.path.parent, "withdraw", worker.address)
    assert last(back) == f"The operator of {worker.address} is {worker.address} now."
    with pytest.raises(Exception, match="withdrew this consent"):
        sign_in(service, worker, cold.address, file)


def test_a_key_that_is_elsewhere_signs_what_is_printed(service: Any, tmp_path: Path) -> None:
    elsewhere, worker = Account.create(), wallet.create_wallet(tmp_path / "worker", None)
    here, place = worker.path.parent, ["--payout", elsewhere.address]

    def signed(command: str) -> Any:
        asked = run_consent(service, here, command, worker.address, *place)
        typed = json.loads(last(asked))
        by = elsewhere.sign_message(encode_typed_data(full_message=typed)).signature.hex()
        nonce = str(typed["message"]["nonce"])
        return run_consent(service, here, command, worker.address, *place, "--nonce", nonce, "--signature", f"0x{by}")

    file = tmp_path / "consent.json"
    file.write_text(last(signed("give")))
    sign_in(service, worker, Address(elsewhere.address), file)
    assert operator_of(service, worker.address) == elsewhere.address
    assert signed("withdraw").exit_code == 0
    assert operator_of(service, worker.address) == worker.address


def test_the_printed_typed_data_has_the_digest_that_the_check_takes(service: Any) -> None:
    market = MarketClient(service.url, lambda _seconds: False)
    facts, account = market.facts(), Account.create()
    market.close()
    for kind in (SignedConsent, Withdrawal):
        message = kind(Address(Account.create().address), Address(account.address), 2**63 - 1)
        by = account.sign_message(
            encode_typed_data(full_message=payout_consents.build_typed_data(facts, message))
        ).signature
        payout_consents.check_struct_signature(facts.domain, message, bytes(by), message.payout)


def test_a_file_that_does_not_hold_is_named_before_anything_is_signed(service: Any, tmp_path: Path) -> None:
    cold, worker, other = (wallet.create_wallet(tmp_path / name, None) for name in ("cold", "worker", "other"))
    good = json.loads(last(run_consent(service, cold.path.parent, "give", worker.address)))
    file = tmp_path / "consent.json"

    def refused(text: str, to: Address = cold.address) -> str:
        file.write_text(text)
        with pytest.raises(Refused) as told:
            sign_in(service, worker, to, file)
        return str(told.value)

    with pytest.raises(Refused, match="cannot be read"):
        payout_consents.load_consent(tmp_path / "none")
    assert "is none" in refused("[]")
    assert f"for worker {worker.address}" in refused(json.dumps(good), other.address)
    assert "does not hold" in refused(json.dumps(good | {"nonce": good["nonce"] + 1}))
    file.write_text(json.dumps(good | {"instance": "0x" + "11" * 32}))
    sign_in(service, worker, cold.address, file)
    assert operator_of(service, worker.address) == worker.address, "one of another contract is not brought here"


def test_a_consent_with_a_wrong_signature_is_refused_by_the_command(service: Any, tmp_path: Path) -> None:
    cold = wallet.create_wallet(tmp_path, None)
    place = ["--payout", Account.create().address, "--nonce", "5", "--signature"]
    for command in ("give", "withdraw"):
        for signature in ("0x" + "00" * 65, "0x12", "words"):
            told = run_consent(service, cold.path.parent, command, cold.address, *place, signature)
            assert told.exit_code == 2, told.output
            assert "error: " in told.output
            assert "Traceback" not in told.output
