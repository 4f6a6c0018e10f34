"""The announcements on the chain that a worker follows, in order: strangers' ones oust no honest market."""

from dataclasses import replace

import pytest
from eth_keys.datatypes import PrivateKey

from contracts import calls, events
from contracts.deployment import deploy_market
from contracts.event_types import JobOpened
from contracts.ledger import Ledger
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Amount, Hash, Units
from tests.lanes import FULL
from tests.onchain import DEPLOYER, HOUR, NewKey, with_money
from worker import Untrusted
from worker.features.discovery import announcements
from worker.features.discovery.announcements import Discovery, origin_of

HONEST = "https://honest.example"


def announced(ledger: Ledger, key: PrivateKey, endpoint: str, units: int) -> JobOpened:
    """A job of `units` that its requester announces at the endpoint."""
    expiry = ledger.block().time + HOUR
    terms = calls.OpenJob(Units(units), Amount(1), expiry, expiry + HOUR, address_of(key), Hash(bytes(32)))
    call = calls.open_job(ledger.deployment.contract, replace(terms, endpoint=endpoint))
    (event,) = events.opened(ledger, require_receipt(execute_call(ledger.web3, key, call)))
    return event


@pytest.fixture
def elsewhere(ledger: Ledger) -> Ledger:
    """The genuine contract over a token that whoever deployed it mints at will."""
    return Ledger(ledger.web3, deploy_market(ledger.web3, DEPLOYER))


@pytest.fixture
def honest(ledger: Ledger, new_key: NewKey) -> JobOpened:
    return announced(ledger, with_money(ledger, new_key()), HONEST, 1000)


def crowd(at: Ledger, key: PrivateKey, count: int = 16, units: int = 10**15) -> None:
    for number in range(count):
        announced(at, key, f"https://empty-{number}.example", units)


def test_sixteen_announcements_in_a_token_of_the_attackers_own_shut_out_nobody(
    ledger: Ledger, elsewhere: Ledger, new_key: NewKey, honest: JobOpened
) -> None:
    crowd(elsewhere, with_money(elsewhere, new_key()))
    named = Discovery(ledger.web3, honest.block, (ledger.deployment.token,))
    assert [found.endpoint for found in named.look()] == [HONEST]
    assert named.look() == []
    any_token = Discovery(ledger.web3, honest.block)
    assert HONEST in [found.endpoint for found in any_token.look(2)]


@pytest.mark.parametrize(
    "endpoint",
    ["http://xn--", "http://\ud800", "http://[", "ftp://a.example", "http://me@a.example", "http://a:-1"],
)
def test_an_announced_address_that_is_none_is_refused_and_ends_no_worker(endpoint: str) -> None:
    """The cheating twin: anybody announces it for dust, and every worker that discovers markets reads it."""
    with pytest.raises(Untrusted, match=r"is no address|is not the address of a market"):
        origin_of(endpoint)
    assert origin_of("https://a.example:8700/shop/") == "https://a.example:8700/shop"


def test_tokens_take_turns_in_the_order_in_which_the_owner_names_them(
    ledger: Ledger, elsewhere: Ledger, new_key: NewKey, honest: JobOpened
) -> None:
    crowd(elsewhere, with_money(elsewhere, new_key()), 2)
    both = (ledger.deployment.token, elsewhere.deployment.token)
    tokens = [found.token for found in Discovery(ledger.web3, honest.block, both).look()]
    assert tokens == [both[0], both[1], both[1]]


def test_a_deposit_that_was_taken_back_ranks_as_what_is_left(
    ledger: Ledger, new_key: NewKey, honest: JobOpened
) -> None:
    requester = with_money(ledger, new_key())
    for endpoint, left in (("https://little.example", 10), ("https://empty.example", 0)):
        job = announced(ledger, requester, endpoint, 10**6).job
        taken = calls.withdraw_free(ledger.deployment.contract, job, Units(10**6 - left))
        require_receipt(execute_call(ledger.web3, requester, taken))
    found = Discovery(ledger.web3, honest.block, (ledger.deployment.token,)).look()
    assert [one.endpoint for one in found] == [HONEST, "https://little.example"]


def test_a_stranger_that_announces_an_honest_address_does_not_take_its_place(
    ledger: Ledger, new_key: NewKey, honest: JobOpened
) -> None:
    announced(ledger, with_money(ledger, new_key()), HONEST, 10**6)
    discovery = Discovery(ledger.web3, honest.block)
    false, true = discovery.look()
    assert (false.event.job != honest.job, true.event.job) == (True, honest.job)


def test_a_failed_announcement_comes_again_after_all_with_fewer_turns(
    ledger: Ledger, new_key: NewKey, honest: JobOpened
) -> None:
    crowd(ledger, with_money(ledger, new_key()), 2, 10**6)
    discovery, looks = Discovery(ledger.web3, honest.block), list[str]()
    for _ in range(5):
        for found in discovery.look(1):
            looks.append(found.endpoint)
            discovery.put_back(found)
    assert looks[2] == HONEST
    assert set(looks[:3]) == {HONEST, "https://empty-0.example", "https://empty-1.example"}
    assert len(looks) == 5


def test_a_later_job_of_a_market_that_led_nowhere_is_followed(ledger: Ledger, new_key: NewKey) -> None:
    """A job may be announced before its market serves it: that it led nowhere once ends nothing."""
    key = with_money(ledger, new_key())
    first = announced(ledger, key, HONEST, 1000)
    discovery = Discovery(ledger.web3, first.block)
    (found,) = discovery.look()
    discovery.put_back(found)
    later = announced(ledger, key, HONEST, 10)
    assert [one.event.job for one in discovery.look()] == [later.job]


@FULL
def test_a_flood_of_dust_makes_no_market_forgotten_that_was_worked_for(
    ledger: Ledger, new_key: NewKey, honest: JobOpened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "MOST_KNOWN", 3)
    discovery = Discovery(ledger.web3, honest.block)
    (found,) = discovery.look()
    discovery.put_back(found)
    crowd(ledger, with_money(ledger, new_key()), 6, 1)
    discovery.look(0)
    assert HONEST in [one.endpoint for one in discovery.look()]


@FULL
def test_a_flood_in_one_token_makes_nothing_of_another_forgotten(
    ledger: Ledger, elsewhere: Ledger, new_key: NewKey, honest: JobOpened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "MOST_KNOWN", 3)
    crowd(elsewhere, with_money(elsewhere, new_key()), 6)
    discovery = Discovery(ledger.web3, honest.block)
    found = discovery.look()
    assert len(found) == 3
    assert HONEST in [one.endpoint for one in found]
