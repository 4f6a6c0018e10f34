"""Shared fixtures: one Anvil for the whole session, one deployment on it, and jobs of each test with fresh keys."""

import gc
import os
import random
import sys
from collections.abc import Iterator
from functools import partial
from importlib.metadata import distribution
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak
from hypothesis import HealthCheck, settings

from contracts import rpc
from contracts.deployment import Deployment, deploy_market
from contracts.ledger import Ledger
from contracts.local import CHAIN_ID, LocalChain
from gradmarket.demo import service as demo_service
from gradmarket.demo.service import Service
from tests.databases import NewDatabase, Postgres, databases_of, new_sqlite, plays_deep, postgres_server
from tests.durations import load_file_seconds
from tests.lanes import FULL, file_of, leave_later_cases, read_list, record_lanes
from tests.onchain import DEPLOYER, NewKey, OpenJob, open_on
from tests.patience import PATIENCE_S, TEST_S
from tests.source_tree import PACKAGES
from tests.town import NEIGHBOURS, TownScheduling, start_town

pytest_plugins = ["tests.durations"]

settings.register_profile(
    "tests",
    deadline=None,
    derandomize=True,  # the same examples in every run: `make test-deep` looks for new ones
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("full", settings.get_profile("tests"), max_examples=50)
settings.register_profile(
    "deep", settings.get_profile("tests"), derandomize=False, max_examples=1_000, stateful_step_count=100
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

os.environ |= {
    "GRADMARKET_AUDITOR": "none",  # it imports torch beside each service; a test of audits runs one of its own
    "CUDA_VISIBLE_DEVICES": "",  # tests compute on processors; those of cards bring a stand-in
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Several of these processes share the cores, so each of them uses one."""

demo_service.START_S = PATIENCE_S  # type: ignore[misc]

HERE = Path(__file__).parent
LONGEST = (
    "sdk/test_train.py",  # and all of the town
    "attacks/test_attacks.py",
    "attacks/test_attacks_alone.py",
    "benchmarks/test_smallest.py",
    "containers/test_deployed_in_containers.py",
    "e2e/test_readme.py",
    "e2e/test_deployed.py",
    "e2e/test_crash.py",
    "e2e/test_parts_in_celery.py",
    "e2e/test_demo.py",
    "e2e/test_page.py",
    "e2e/test_page_wallet.py",
    "worker/test_worker_process.py",
    "contracts/test_forge.py",
    "requester/test_any_order.py",
)


def pytest_configure() -> None:
    """Collected tests never become garbage, and the garbage collector takes a tenth of the time.

    Child processes import the installed packages, of which an older checkout's install lacks some."""
    gc.disable()
    installed = (distribution("gradmarket").read_text("top_level.txt") or "").split()
    if lacking := set(PACKAGES) - set(installed):
        pytest.exit(f"the install lacks {', '.join(sorted(lacking))}: make install", returncode=1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files begin first: whoever has one left when all others are done is waited for. How long those of
    `make test` take is in tests/durations.json.

    With ORDER in the environment, a number, files and the tests of each come in an order of its own.
    """
    record_lanes(config, items)
    if not plays_deep():
        items[:], left = leave_later_cases(items)
        config.hook.pytest_deselected(items=left)
    ranks, seconds = {HERE / name: rank for rank, name in enumerate(LONGEST)}, load_file_seconds()
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), -seconds.get(file_of(item.nodeid), 0.0)))
    strangers = {file_of(item.nodeid) for item in items if lives_in_town(item)} - set(NEIGHBOURS)
    assert not strangers, f"tests.town.NEIGHBOURS lacks {strangers}: they would start a town of their own"
    if order := os.environ.get("ORDER"):
        drawn = random.Random(int(order))
        places = {path: drawn.random() for path in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: (places[item.path], drawn.random()))
    for item in items if config.getoption("timeout") is None else ():
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` imports no file of which `make test-all` has every test."""
    left = config.option.markexpr == f"not {FULL.name}" and str(collection_path.relative_to(HERE.parent)) in read_list()
    return left or None


def lives_in_town(item: pytest.Item) -> bool:
    return "town" in getattr(item, "fixturenames", ())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TownScheduling | None:
    return TownScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Imported modules stay: a collector that walks over them again and again takes a twentieth of all time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    gc.enable()


@pytest.fixture(scope="session")
def anvil() -> Iterator[LocalChain]:
    """One chain for the whole session; its clock is the machine's, so tests that move time start their own."""
    chain = LocalChain.start(None)
    yield chain
    chain.stop()


@pytest.fixture
def own_anvil() -> Iterator[LocalChain]:
    """A chain of the test's own, for lasting changes: a killed process, a chain that begins anew."""
    chain = LocalChain.start(None)
    yield chain
    chain.stop()


@pytest.fixture(scope="session")
def deployment(anvil: LocalChain) -> Deployment:
    return deploy_market(anvil.connect(), DEPLOYER)


@pytest.fixture(scope="session")
def ledger(anvil: LocalChain, deployment: Deployment) -> Ledger:
    return Ledger(anvil.connect(), deployment)


@pytest.fixture(scope="session")
def disturbed_ledger() -> Iterator[Ledger]:
    """On the one chain of the session that tests disturb in turn."""
    chain = LocalChain.start(None)
    web3 = chain.connect()
    yield Ledger(web3, deploy_market(web3, DEPLOYER))
    chain.stop()


@pytest.fixture
def own_ledger(disturbed_ledger: Ledger) -> Iterator[Ledger]:
    """For changes that must not reach other tests, such as moved time, stopped mining, lost blocks: all are undone."""
    web3 = disturbed_ledger.web3
    before = rpc.call_json_rpc(web3, "evm_snapshot")
    yield Ledger(web3, disturbed_ledger.deployment)
    rpc.call_json_rpc(web3, "anvil_dropAllTransactions")
    rpc.call_json_rpc(web3, "evm_setAutomine", True)
    rpc.call_json_rpc(web3, "anvil_setChainId", CHAIN_ID)
    assert rpc.call_json_rpc(web3, "evm_revert", before) is True
    newest = web3.eth.get_block("latest")["baseFeePerGas"]  # the next block's base fee is not undone
    rpc.call_json_rpc(web3, "anvil_setNextBlockBaseFeePerGas", hex(newest))


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with start_town(tmp_path_factory.mktemp("town")) as made:
        yield made


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL for the whole session; tests have databases of their own there."""
    with postgres_server() as server:
        yield server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "new_database" in metafunc.fixturenames:
        metafunc.parametrize("new_database", databases_of(metafunc.definition, metafunc.config), indirect=True)


@pytest.fixture
def new_database(request: pytest.FixtureRequest) -> Iterator[NewDatabase]:
    """Of the kind that the test's mark `databases` names."""
    if request.param == "sqlite":
        yield new_sqlite
        return
    server: Postgres = request.getfixturevalue("postgres")
    made: list[str] = []

    def new(_folder: Path) -> str:
        made.append(server.new())
        return made[-1]

    yield new
    for url in made:
        server.drop(url)


@pytest.fixture
def seeded() -> None:
    """Seeds torch; a test that requests this has imported torch."""
    sys.modules["torch"].manual_seed(0)


@pytest.fixture
def new_key(request: pytest.FixtureRequest) -> NewKey:
    """Keys that no other test has, the same in every run."""
    numbers = count()
    return lambda: PrivateKey(keccak(text=f"{request.node.nodeid} {next(numbers)}"))


@pytest.fixture
def open_job(ledger: Ledger, new_key: NewKey) -> OpenJob:
    """Opens a job of the test's own: open_job(deposit=units, unit=1, expiry_s=3600, window_s=3600)."""
    return partial(open_on, ledger, new_key)
