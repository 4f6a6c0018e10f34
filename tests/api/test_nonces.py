"""Nonces to sign in with: nobody keeps them, nobody makes one up, and each is good once until its end."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from eth_account import Account
from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from contracts import deployment as deployments
from gradmarket.market.signing import signer_of
from gradmarket.market.wire.sign_in import SIGN_IN_LETTERS
from requester.api.sign_in_routes import GOOD_S, Nonces, named_in
from requester.settings import RequesterSettings
from requester.store import identities
from requester.store.tables import ApiToken, Nonce
from tests.api.api_service import serving
from tests.databases import BOTH

OURS = Nonces(signer_of(PrivateKey(keccak(text="ours"))))
TIMES = st.floats(0, 2**38)


@given(TIMES, st.floats(0, 2 * GOOD_S))
def test_a_nonce_is_good_until_its_end_and_no_longer(now: float, later: float) -> None:
    value, until = OURS.make(now)
    assert value.isalnum()
    assert until <= now + GOOD_S
    assert OURS.until(value, now + later) == (until if now + later <= until else None)
    assert named_in(f"before\nNonce: {value}\nafter") == value


def test_processes_of_one_signer_know_each_others() -> None:
    again = Nonces(signer_of(PrivateKey(keccak(text="ours"))))
    other = Nonces(signer_of(PrivateKey(keccak(text="another's"))))
    value, until = OURS.make(1000.0)
    assert again.until(value, 1000.0) == until
    assert other.until(value, 1000.0) is None


@given(st.data())
def test_a_nonce_that_was_changed_anywhere_is_nobodys(data: st.DataObject) -> None:
    value, _ = OURS.make(1000.0)
    at = data.draw(st.integers(0, len(value) - 1))
    digit = data.draw(st.sampled_from("0123456789abcdef"))
    changed = value[:at] + digit + value[at + 1 :]
    assert (OURS.until(changed, 1000.0) is None) == (changed != value)


@pytest.mark.parametrize("message", ["", "Nonce: ", "Nonce: zz", "Nonce: " + "a" * 57, "x Nonce: " + "a" * 58])
def test_no_nonce_names_none(message: str) -> None:
    assert named_in(message) is None


def test_asking_for_nonces_writes_nothing(service) -> None:  # type: ignore[no-untyped-def]
    def count_nonces() -> int:
        with service.context.reading() as reader:
            return reader.session.scalar(select(func.count()).select_from(Nonce)) or 0

    before = count_nonces()
    assert len({service.anyone.get("/v1/session/nonce").json()["nonce"] for _ in range(20)}) == 20
    assert count_nonces() == before


def test_a_refused_sign_in_uses_no_nonce_up(service) -> None:  # type: ignore[no-untyped-def]
    account, thief = Account.create(), Account.create()
    message = service.siwe(account)
    assert service.knock(thief, message).status_code == 422
    assert service.knock(account, message).status_code == 201


def test_letters_without_a_nonce_of_ours_are_not_read(service) -> None:  # type: ignore[no-untyped-def]
    """The grammar would take seconds for texts that are refused here by their length or by their missing nonce."""
    for letters in (SIGN_IN_LETTERS, SIGN_IN_LETTERS + 1, 4000):
        said = {"message": "a" * letters, "signature": "0x" + "00" * 65}
        answer = service.anyone.post("/v1/session", json=said)
        assert answer.status_code == 422
        assert ("nonce" in answer.json()["detail"]) == (letters <= SIGN_IN_LETTERS)


@BOTH
def test_one_nonce_at_the_same_time_signs_in_once(anvil, deployment, new_database, tmp_path) -> None:  # type: ignore[no-untyped-def]
    deployments.write_deployment(deployment, tmp_path / "deployment.json")
    with serving(RequesterSettings(data=tmp_path, rpc=anvil.url, database=new_database(tmp_path))) as service:
        account = Account.create()
        message = service.siwe(account)
        with ThreadPoolExecutor(8) as pool:
            found = [pool.submit(service.knock, account, message) for _ in range(8)]
        assert sorted(answer.result().status_code for answer in found) == [201] + [422] * 7
        with service.context.reading() as reader:
            tokens = select(func.count()).select_from(ApiToken).where(ApiToken.subject == account.address)
            assert reader.session.scalar(tokens) == 1


@BOTH
def test_one_wallet_signs_in_many_times_at_once(anvil, deployment, new_database, tmp_path) -> None:  # type: ignore[no-untyped-def]
    deployments.write_deployment(deployment, tmp_path / "deployment.json")
    with serving(RequesterSettings(data=tmp_path, rpc=anvil.url, database=new_database(tmp_path))) as service:
        account = Account.create()
        messages = [service.siwe(account) for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda message: service.knock(account, message), messages))
        assert [answer.status_code for answer in found] == [201] * 8


def test_a_used_nonce_is_forgotten_after_its_end(service) -> None:  # type: ignore[no-untyped-def]
    value, until = OURS.make(1000.0)
    with service.context.begin() as work:
        assert identities.use_nonce(work, value, until, 1000.0)
    with service.context.begin() as work:
        assert not identities.use_nonce(work, value, until, until)
        assert identities.use_nonce(work, value, until, until + 1)
