"""The composition root: builds the stages' context from the settings. Only it makes a database, key or chain."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, reduce

from eth_keys.datatypes import PrivateKey
from sqlalchemy.engine import make_url
from web3 import Web3

from contracts import deployment, local, private_folder
from contracts.calls import OpenJob
from contracts.deployment import Deployment
from contracts.gas_price import GWEI, WAITS
from contracts.ledger import Ledger
from contracts.rpc import LOCAL_CHAIN_IDS, connect_to_node
from gradmarket.market import signing
from gradmarket.market.errors import Refused
from gradmarket.market.messages import LogHead
from gradmarket.market.release import PROTOCOL
from gradmarket.market.rules import payment
from gradmarket.market.terms import Address, Units
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network.chain_errors import ChainError
from gradmarket.runner.machine_limits import choose_memory
from requester import blobs, keys, logs
from requester.chain.chain_context import ChainContext, ChainPolicy, Correction
from requester.chain.chain_worker import ChainWorker
from requester.context import Context, open_work
from requester.features import FEATURES
from requester.model_runner import ModelRunner
from requester.notifier import Notifier, Relay
from requester.settings import LEAST_MODEL_MEMORY, RequesterSettings
from requester.store import identities, schema
from requester.store.locks import retry_on_conflict
from requester.store.schema import check_unfinished
from requester.store.session import Sessions, sessions_of
from requester.store.session import open_engine as connect_database
from requester.store.tables import Job
from requester.store.work import begin_work, open_reader

CHAIN_TOPIC = "settle"
"""The topic that is notified of possible chain work."""


@dataclass(frozen=True)
class Chain:
    """The chain that holds the money. `process` is this service's own Anvil, where it has one."""

    web3: Web3
    deployment: Deployment
    ledger: Ledger
    process: local.LocalChain | None


def open_chain(settings: RequesterSettings) -> Chain:
    """Returns the configured chain, or a local one of its own that is resumed when the service comes back.

    Raises Refused where that one's state is gone.
    """
    path = settings.data / "deployment.json"
    if settings.rpc is None and path.exists() and not local.is_chain_resumable(settings.data / "chain"):
        remedy = "name that chain's node with --rpc, bring the chain back with the rest by `gradmarket restore`"
        raise Refused(
            f"the chain that {path} names is not in {settings.data / 'chain'}",
            f"{remedy}, or take a new folder with --data",
        )
    process = None if settings.rpc else local.LocalChain.open(settings.data / "chain")
    web3 = connect_to_node(str(settings.rpc) if settings.rpc else process.url)  # type: ignore[union-attr]
    if not path.exists():
        deployed = deployment.deploy_market(web3, local.development_key(), settings.min_claim_window_s)
        deployment.write_deployment(deployed, path)
    known = deployment.load_deployment(path)
    deployment.verify_deployment(web3, known)
    return Chain(web3, known, Ledger(web3, known), process)


def configure_logging(as_json: bool, level: str) -> None:
    """Configures this process's logs as `requester.logs` does, with the features' processors and filters."""
    processors = [each for feature in FEATURES for each in feature.log_processors]
    filters = [each for feature in FEATURES for each in feature.log_filters]
    logs.configure_logging(as_json, level, processors=processors, filters=filters)


def open_relay(settings: RequesterSettings) -> Relay | None:
    """Returns the relay that notifies the processes that run the stages; None where this one does."""
    if settings.stages == "embedded":
        return None
    relays = (feature.open_relay(settings) for feature in FEATURES)
    if relay := next(filter(None, relays), None):
        return relay
    raise Refused("this service is built without stages in other processes", "set GRADMARKET_STAGES=embedded")


def open_notifier(url: str, relay: Relay | None = None) -> Notifier:
    """Returns the notifier for the processes that share the database at `url`."""
    if make_url(url).get_backend_name() != "postgresql":
        return Notifier()
    notifiers = (feature.open_notifier(url, relay) for feature in FEATURES)
    if notifier := next(filter(None, notifiers), None):
        return notifier
    raise Refused("this service is built without notifications through PostgreSQL", "set GRADMARKET_DATABASE to SQLite")


@contextmanager
def open_context(settings: RequesterSettings, public_url: str, relay: Relay | None = None) -> Iterator[Context]:
    """Yields a context for one process, closed at the end of the block; `relay` as in open_relay."""
    private_folder(settings.data, settings.hidden)
    with ExitStack() as stack:
        for feature in FEATURES:
            stack.enter_context(feature.record_process(settings))
        engine = connect_database(settings.database_url)
        clock = next(filter(None, (feature.open_clock() for feature in FEATURES)), time.time)
        stack.callback(engine.dispose)
        check_unfinished(engine)
        schema.upgrade_schema(engine)
        sessions = sessions_of(engine, FEATURES)
        with (settings.data / "starting.lock").open("a") as starting:
            # one process at a time creates the missing parts of a shared data folder
            fcntl.flock(starting, fcntl.LOCK_EX)
            chain = open_chain(settings)
            lock = keys.load_key_lock(settings, _is_local(chain))
            signer = keys.load_or_create_key(settings.signer_key, settings.data / "keys" / "signer", lock)
            sender = keys.load_or_create_key(settings.sender_key, settings.data / "keys" / "sender", lock)
            _remember_token(settings, sessions)
        modelling = ModelRunner(settings.model_memory or max(LEAST_MODEL_MEMORY, choose_memory()), settings.step_memory)
        stack.callback(modelling.close)
        notifier = open_notifier(settings.database_url, relay)
        stack.callback(notifier.stop)
        notified = stack.enter_context(notifier.listen([CHAIN_TOPIC])) if settings.stages == "embedded" else None
        chain_worker = ChainWorker(
            _build_chain_context(
                settings, sessions, notifier, chain, sender, signing.address_of(signer), public_url, clock
            ),
            notified,
        )
        stack.callback(chain_worker.leave)
        yield Context(
            settings=settings,
            sessions=sessions,
            blobs=blobs.open_blob_store(settings),
            notifier=notifier,
            clock=clock,
            domain=chain.deployment.domain,
            signer=signing.signer_of(signer),
            signer_address=signing.address_of(signer),
            public_url=public_url,
            chain_facts=_build_chain_facts(chain, signing.address_of(signer)),
            modelling=modelling,
            ledger=chain.ledger,
            chain_worker=chain_worker,
            on_sign_in=partial(local.give_gas, chain.ledger) if _is_local(chain) else lambda _worker: None,
            chain_trouble=partial(_find_chain_trouble, chain, chain_worker),
        )


def _build_chain_context(
    settings: RequesterSettings,
    sessions: Sessions,
    notifier: Notifier,
    chain: Chain,
    sender: PrivateKey,
    signer: Address,
    public_url: str,
    clock: Callable[[], float],
) -> ChainContext:
    elsewhere = None
    if settings.owner is not None:
        elsewhere = next((feature.elsewhere for feature in FEATURES if feature.elsewhere is not None), None)
        if elsewhere is None:
            raise Refused("this service is built without owners' keys elsewhere", "leave GRADMARKET_OWNER out")
    grant = local.local_grant(chain.ledger, signing.address_of(sender)) if _is_local(chain) else None
    return ChainContext(
        begin=partial(open_work, sessions, notifier),
        reading=partial(open_reader, sessions),
        ledger=chain.ledger,
        key=sender,
        signer=signer,
        clock=clock,
        policy=ChainPolicy(
            settle_every_s=settings.settle_every_s,
            settle_gradients=settings.settle_gradients,
            confirmations=settings.confirmations,
            reserve_ahead=settings.reserve_ahead,
            claim_window_s=settings.claim_window_s,
            max_fee=None if settings.max_fee is None else int(settings.max_fee * GWEI),
        ),
        endpoint=public_url,
        owner=settings.owner,
        elsewhere=elsewhere,
        grant=grant,
        steps=tuple(step for feature in FEATURES for step in feature.chain_steps),
        extend_log=extend_log,
        extend_opening=extend_opening,
        measure_stake=measure_stake,
        correction=next((one.correction for one in FEATURES if one.correction is not None), Correction()),
        revive=chain.process.revive if chain.process else bool,
    )


def extend_log(chain: ChainContext, job_id: str) -> LogHead | None:
    return next(filter(None, (feature.extend_log(chain, job_id) for feature in FEATURES)), None)


def extend_opening(opening: OpenJob, job: Job, min_window: int) -> OpenJob:
    return reduce(lambda terms, feature: feature.extend_opening(terms, job, min_window), FEATURES, opening)


def measure_stake(chain: ChainContext, job: Job, worker: Address) -> Units:
    return Units(sum(feature.measure_stake(chain, job, worker) for feature in FEATURES))


def _is_local(chain: Chain) -> bool:
    return chain.deployment.chain_id in LOCAL_CHAIN_IDS


@retry_on_conflict
def _remember_token(settings: RequesterSettings, sessions: Sessions) -> None:
    token = keys.load_or_create_secret(settings.token, settings.data / "keys" / "token")
    with begin_work(sessions) as work:
        identities.store_own_token(work, token, time.time())


def _build_chain_facts(chain: Chain, signer: Address) -> ChainFacts:
    known, decimals = chain.deployment, chain.ledger.decimals()
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
        rpc=str(chain.web3.provider.endpoint_uri) if _is_local(chain) else None,  # type: ignore[attr-defined]
        block=known.block,
        protocol=PROTOCOL,
    )


def _find_chain_trouble(chain: Chain, worker: ChainWorker) -> str:
    """Returns why the chain cannot be used; empty where gas alone is too dear: computation goes on."""
    if worker.trouble and not worker.trouble.startswith(WAITS):
        return worker.trouble
    try:
        chain.ledger.verify()
    except ChainError as error:
        return str(error)
    return ""
