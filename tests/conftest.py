"""What tests share: one Anvil for the whole session, one deployment on it, and jobs of their own with fresh keys."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest
from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak
from hypothesis import HealthCheck, settings

from gradmarket.contracts import calls, events
from gradmarket.contracts.deployment import Deployment, deploy
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.local import DEVELOPMENT_KEYS, LocalChain, fund_gas
from gradmarket.contracts.transactions import execute, mined
from gradmarket.market.messages import Voucher
from gradmarket.market.signing import address_of, digest, sign
from gradmarket.market.terms import Address, Amount, Hash, Units

ETHER = 10**18
HOUR = 3600
DEPLOYER = DEVELOPMENT_KEYS[0]

settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))


@pytest.fixture(scope="session")
def anvil() -> Iterator[LocalChain]:
    """One chain for the whole session; its clock is the machine's, so tests that move time start their own."""
    chain = LocalChain.start(None)
    yield chain
    chain.stop()


@pytest.fixture(scope="session")
def deployment(anvil: LocalChain) -> Deployment:
    return deploy(anvil.connect(), DEPLOYER)


@pytest.fixture(scope="session")
def ledger(anvil: LocalChain, deployment: Deployment) -> Ledger:
    return Ledger(anvil.connect(), deployment)


NewKey = Callable[[], PrivateKey]


@pytest.fixture
def new_key(request: pytest.FixtureRequest) -> NewKey:
    """Keys that no other test has, the same in every run."""
    numbers = count()
    return lambda: PrivateKey(keccak(text=f"{request.node.nodeid} {next(numbers)}"))


@dataclass(frozen=True)
class OpenedJob:
    """A job on the chain, whose requester has gas money and allows the contract to pull its tokens."""

    id: int
    ledger: Ledger
    requester: PrivateKey
    signer: PrivateKey
    spec_digest: Hash
    expiry: int
    claim_until: int
    workers: list[PrivateKey] = field(default_factory=list)

    @property
    def market(self) -> Address:
        return self.ledger.deployment.contract

    def send(self, call: calls.Call, key: PrivateKey | None = None) -> None:
        """By the requester, unless `key` says otherwise."""
        mined(execute(self.ledger.web3, key or self.requester, call))

    def reserve(self, *rows: tuple[Address, int]) -> None:
        self.send(calls.reserve(self.market, self.id, [(worker, Units(units)) for worker, units in rows]))

    def voucher(self, worker: Address, cumulative: int) -> tuple[Voucher, bytes]:
        voucher = Voucher(self.id, worker, Units(cumulative))
        return voucher, sign(self.signer, digest(self.ledger.domain(), voucher))


OpenJob = Callable[..., OpenedJob]


def with_money(ledger: Ledger, key: PrivateKey, tokens: int = 10**24) -> PrivateKey:
    """Gas money and tokens for `key`, and leave for the contract to pull them."""
    fund_gas(ledger.web3, address_of(key), ETHER)
    place = ledger.deployment
    mined(execute(ledger.web3, DEPLOYER, calls.mint(place.token, address_of(key), Amount(tokens))))
    mined(execute(ledger.web3, key, calls.approve(place.token, place.contract, Amount(tokens))))
    return key


@pytest.fixture
def open_job(ledger: Ledger, new_key: NewKey) -> OpenJob:
    """Opens a job of the test's own: open_job(deposit=units, unit=1, expiry_s=3600, window_s=3600)."""

    def opened(deposit: int = 1_000, unit: int = 1, expiry_s: int = HOUR, window_s: int = HOUR) -> OpenedJob:
        requester, signer = with_money(ledger, new_key()), new_key()
        expiry = ledger.block().time + expiry_s
        spec = Hash(keccak(requester.to_bytes()))
        terms = calls.OpenJob(
            Units(deposit), Amount(unit), expiry, expiry + window_s, address_of(signer), spec, endpoint="test"
        )
        receipt = mined(execute(ledger.web3, requester, calls.open_job(ledger.deployment.contract, terms)))
        (event,) = events.opened(ledger, receipt)
        return OpenedJob(event.job, ledger, requester, signer, spec, expiry, expiry + window_s)

    return opened
