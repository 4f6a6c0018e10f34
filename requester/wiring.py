"""The composition root: settings -> everything a stage works with. Nothing else makes a database, a key or a chain."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from web3 import Web3

from gradmarket.contracts import deployment, local
from gradmarket.contracts.deployment import Deployment
from gradmarket.contracts.errors import ChainError
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.rpc import LOCAL_CHAIN_IDS, connect
from gradmarket.market import signing
from gradmarket.market.rules import payment
from gradmarket.market.terms import Address
from gradmarket.market.wire import ChainFacts
from gradmarket.requester import keys
from gradmarket.requester.bell import Bell
from gradmarket.requester.blobs.disk import DiskBlobs
from gradmarket.requester.context import Context
from gradmarket.requester.modelling import Modelling
from gradmarket.requester.settings import Settings
from gradmarket.requester.store import identities, schema
from gradmarket.requester.store.session import Sessions, begin, sessions_of
from gradmarket.requester.store.session import connect as connect_database

GAS_GIFT_WEI = 10**18
"""What a worker gets on a local chain, and nothing else: enough to redeem for years."""


@dataclass(frozen=True)
class Chain:
    """Where the money is. `process` is this service's own Anvil, where it has one."""

    web3: Web3
    deployment: Deployment
    ledger: Ledger
    process: local.LocalChain | None


def open_chain(settings: Settings) -> Chain:
    """The configured chain, or a local one of its own that is reattached when the service comes back."""
    process = None if settings.rpc else local.LocalChain.open(settings.data / "chain")
    web3 = connect(str(settings.rpc) if settings.rpc else process.url)  # type: ignore[union-attr]
    book = settings.data / "deployment.json"
    if not book.exists():
        made = deployment.deploy(web3, local.DEVELOPMENT_KEYS[0], settings.min_claim_window_s)
        deployment.write(made, book)
    known = deployment.read(book)
    deployment.verify(web3, known)
    return Chain(web3, known, Ledger(web3, known), process)


@contextmanager
def wired(settings: Settings, public_url: str) -> Iterator[Context]:
    """A context for one process of the service, closed at the end of the block."""
    settings.data.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        engine = connect_database(settings.database_url)
        stack.callback(engine.dispose)
        schema.upgrade(engine)
        chain = open_chain(settings)
        signer = keys.key(settings.signer_key, settings.data / "keys" / "signer")
        sender = keys.key(settings.sender_key, settings.data / "keys" / "sender")
        modelling = Modelling()
        stack.callback(modelling.close)
        sessions = sessions_of(engine)
        _remember_token(settings, sessions)
        yield Context(
            settings=settings,
            sessions=sessions,
            blobs=DiskBlobs(settings.data / "blobs"),
            bell=Bell(),
            clock=time.time,
            domain=chain.deployment.domain,
            signer=signing.signer_of(signer),
            signer_address=signing.address_of(signer),
            public_url=public_url,
            chain_facts=_facts(chain, signing.address_of(signer)),
            modelling=modelling,
            ledger=chain.ledger,
            sender=sender,
            on_sign_in=_gas_giver(chain),
            chain_trouble=lambda: _trouble(chain),
        )


def _remember_token(settings: Settings, sessions: Sessions) -> None:
    token = keys.secret(settings.token, settings.data / "keys" / "token")
    with begin(sessions) as session:
        identities.remember(session, token, "requester", "requester", None)


def _facts(chain: Chain, signer: Address) -> ChainFacts:
    known, decimals = chain.deployment, chain.ledger.decimals()
    is_local = known.chain_id in LOCAL_CHAIN_IDS
    return ChainFacts(
        chain_id=known.chain_id,
        genesis=known.genesis,
        contract=known.contract,
        token=known.token,
        instance=known.instance,
        signer=signer,
        symbol=chain.ledger.symbol(),
        decimals=decimals,
        unit=str(payment.unit_of(decimals)),
        rpc=str(chain.web3.provider.endpoint_uri) if is_local else None,  # type: ignore[attr-defined]
    )


def _gas_giver(chain: Chain) -> Callable[[Address], None]:
    def give(address: Address) -> None:
        poor = chain.ledger.gas_money(address) < GAS_GIFT_WEI // 10
        if chain.deployment.chain_id in LOCAL_CHAIN_IDS and poor:
            local.fund_gas(chain.web3, address, GAS_GIFT_WEI)

    return give


def _trouble(chain: Chain) -> str:
    try:
        chain.ledger.verify()
    except ChainError as error:
        return str(error)
    return ""
