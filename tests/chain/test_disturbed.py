"""A node that answers late, lags or forgets, and an escrow that runs dry: in the end each gradient is paid once.

Deaths at each step are in test_killed_anywhere and test_outbox; stuck and replaced transactions, missing nonces and an
empty purse in test_sender; a chain that is restarted, new or gone back in test_reconcile.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from requests.exceptions import ReadTimeout
from web3 import HTTPProvider, Web3
from web3.types import RPCEndpoint, RPCResponse

from contracts import claims
from contracts.deployment import deploy_market
from contracts.ledger import Ledger
from contracts.local import LocalChain, fund_gas
from contracts.rpc import call_json_rpc
from contracts.transactions import require_receipt
from gradmarket.market.terms import Address, Units
from requester.chain import mirror
from requester.store.tables import Transaction, Worker
from tests.chain.chain_differences import list_chain_differences
from tests.chain.chain_fixture import BUDGET, PRICE, ChainFixture, busy, check
from tests.lanes import FULL, leave_to_full
from tests.onchain import DEPLOYER, NewKey

TillOn = Callable[[Ledger], ChainFixture]


def through(ledger: Ledger, provider: HTTPProvider) -> Ledger:
    web3 = Web3(provider)
    web3.middleware_onion.remove("validation")
    return Ledger(web3, ledger.deployment)


def url_of(ledger: Ledger) -> str:
    return str(ledger.web3.provider.endpoint_uri)  # type: ignore[attr-defined]


def settled_once(chain_fixture: ChainFixture, job_id: str, worker: Address, gradients: int) -> None:
    """Checks that the books equal the chain, and that the voucher brings exactly the earnings, once."""
    check(chain_fixture, job_id, worker, gradients)
    for _ in range(2):
        require_receipt(claims.redeem(chain_fixture.ledger, DEPLOYER, *chain_fixture.voucher(job_id, worker)))
    chain_fixture.settle_down()
    assert list_chain_differences(chain_fixture.chain, job_id) == []
    assert chain_fixture.ledger.balance(worker) == gradients * PRICE


# --- time-outs -------------------------------------------------------------------------------------------------------


class LateProvider(HTTPProvider):
    """The node executes each request; every third answer comes after the client has stopped waiting."""

    def __init__(self, url: str) -> None:
        super().__init__(url, exception_retry_configuration=None)
        self.lost = cycle((False, False, True))
        self.patient = False

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        answer = super().make_request(method, params)
        if not self.patient and next(self.lost):
            raise ReadTimeout
        return answer


@FULL
def test_every_third_answer_comes_too_late(chain_fixture: ChainFixture, ledger: Ledger, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    late = LateProvider(url_of(ledger))
    chain_fixture.restart(through(ledger, late))
    for _ in range(15):
        chain_fixture.chain_worker.step()
        chain_fixture.clock.now += 1
    late.patient = True
    settled_once(chain_fixture, job_id, worker, 7)
    assert len(chain_fixture.all(Transaction, Transaction.kind == "settle")) == 1


# --- a re-org that forgets transactions ------------------------------------------------------------------------------


@pytest.fixture
def historic() -> Iterator[Ledger]:
    """On a chain that keeps the states of its old blocks."""
    chain = LocalChain.start(None, history=True)
    web3 = chain.connect()
    yield Ledger(web3, deploy_market(web3, DEPLOYER))
    chain.stop()


@FULL
def test_blocks_are_replaced_by_empty_ones(historic: Ledger, till_on: TillOn, new_key: NewKey) -> None:
    """Anvil's re-org drops the transactions of the old blocks and puts them back into no pool."""
    chain_fixture = till_on(historic)
    job_id, worker = busy(chain_fixture, new_key)
    chain_fixture.settle_down()
    last = historic.block().number
    call_json_rpc(historic.web3, "anvil_reorg", 3, [])
    assert historic.block().number == last
    assert historic.job(chain_fixture.job(job_id).chain_job or 0).batches == 0
    settled_once(chain_fixture, job_id, worker, 7)


@FULL
def test_a_re_org_between_batches(historic: Ledger, till_on: TillOn, new_key: NewKey) -> None:
    chain_fixture = till_on(historic)
    job_id, worker = busy(chain_fixture, new_key)
    chain_fixture.settle_down()
    chain_fixture.earns(job_id, worker, 2)
    chain_fixture.clock.now += chain_fixture.policy.settle_every_s
    assert chain_fixture.chain_worker.step()
    call_json_rpc(historic.web3, "anvil_reorg", 2, [])
    settled_once(chain_fixture, job_id, worker, 9)


# --- a read node behind the one that is written to -------------------------------------------------------------------


class Balancer(HTTPProvider):
    """Transactions reach the node at the front; which one answers questions changes from one to the next."""

    def __init__(self, front: str, behind: str, turns: Iterator[bool]) -> None:
        super().__init__(front, exception_retry_configuration=None)
        self.turns = turns
        self.behind = HTTPProvider(behind, exception_retry_configuration=None)

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        if method != "eth_sendRawTransaction" and next(self.turns):
            return self.behind.make_request(method, params)
        return super().make_request(method, params)


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Yields the folders of the node at the front and of the one behind; stops nodes that run there at the end."""
    both = (tmp_path / "front", tmp_path / "behind")
    yield both
    for folder in both:
        running = LocalChain.find_running_chain(folder)
        if running is not None:
            running.stop()


@pytest.mark.parametrize(
    "turns", leave_to_full([((True,),), ((False, False, True),)]), ids=["always behind", "now and then"]
)
def test_a_node_behind_answers(
    folders: tuple[Path, Path], till_on: TillOn, new_key: NewKey, turns: tuple[bool, ...]
) -> None:
    front, behind = folders
    web3 = LocalChain.open(front).connect()
    chain_fixture = till_on(Ledger(web3, deploy_market(web3, DEPLOYER)))
    job_id, worker = busy(chain_fixture, new_key)
    LocalChain.open(front).stop()
    shutil.copytree(front, behind)
    urls = [LocalChain.open(folder).url for folder in (front, behind)]
    ahead = Ledger(LocalChain.open(front).connect(), chain_fixture.ledger.deployment)
    chain_fixture.restart(through(ahead, Balancer(*urls, cycle(turns))))
    for _ in range(8):
        chain_fixture.chain_worker.step()
        chain_fixture.clock.now += chain_fixture.policy.resend_after_s
    chain_fixture.restart(ahead)
    settled_once(chain_fixture, job_id, worker, 7)
    assert ahead.job(chain_fixture.job(job_id).chain_job or 0).batches == 1


class LaggingProvider(HTTPProvider):
    """Of the nodes behind one address every third to answer, by chance, lacks the newest block."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url, exception_retry_configuration=None)
        self.dice, self.behind = random.Random(seed), True

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        asked = list(params)
        if self.behind and method in BY_BLOCK and self.dice.random() < 1 / 3:
            newest = int(super().make_request(RPCEndpoint("eth_blockNumber"), [])["result"], 16) - 1
            if method == "eth_blockNumber":
                return {"jsonrpc": "2.0", "id": 1, "result": hex(newest)}
            at = asked[BY_BLOCK[method]]
            if at == "latest":
                asked[BY_BLOCK[method]] = hex(newest)
            elif at.startswith("0x") and int(at, 16) > newest:
                refusal = {"code": -32000, "message": "header not found"}
                return {"jsonrpc": "2.0", "id": 1, "error": refusal}  # type: ignore[typeddict-item]
        return super().make_request(method, asked)


BY_BLOCK = {"eth_call": 1, "eth_getTransactionCount": 1, "eth_getBlockByNumber": 0, "eth_blockNumber": -1}
"""Place of the block among the parameters."""


@FULL
@pytest.mark.parametrize("seed", [0, 3])
def test_old_figures_have_nothing_deposited_or_reserved_twice(
    historic: Ledger, till_on: TillOn, new_key: NewKey, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(mirror, "LOCAL_CHAIN_IDS", frozenset())
    chain_fixture, node = till_on(historic), LaggingProvider(url_of(historic), seed)
    chain_fixture.restart(through(historic, node))

    def step() -> None:
        for _ in range(12):
            chain_fixture.chain_worker.step()
            chain_fixture.clock.now += chain_fixture.policy.settle_every_s

    job_id = chain_fixture.new_job()
    step()
    worker = chain_fixture.joins(job_id, new_key())
    step()
    chain_fixture.set_job(job_id, budget=2 * BUDGET)
    step()
    chain_fixture.mark_asking(worker)
    chain_fixture.earns(job_id, worker, 3)
    step()
    node.behind = False
    step()
    chain_job = chain_fixture.job(job_id).chain_job or 0
    assert historic.job(chain_job).deposited == 2 * BUDGET
    account = historic.account(chain_job, worker)
    assert (account.reserved, account.settled) == (4 * PRICE, 3 * PRICE)


# --- a node that shows no logs ----------------------------------------------------------------------------------------


class SilentProvider(HTTPProvider):
    """A node that lacks the newest block's logs while `lacks`."""

    lacks = False

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        if self.lacks and method == "eth_getLogs":
            refusal = {"code": -32000, "message": "block range extends beyond current head block"}
            return {"jsonrpc": "2.0", "id": 1, "error": refusal}  # type: ignore[typeddict-item]
        return super().make_request(method, params)


def test_a_deposit_whose_figures_the_node_does_not_show_is_not_made_again(
    chain_fixture: ChainFixture, ledger: Ledger
) -> None:
    job_id, node = chain_fixture.running_job(), SilentProvider(url_of(ledger), exception_retry_configuration=None)
    chain_fixture.restart(through(ledger, node))
    chain_fixture.settle_down()
    chain_fixture.set_job(job_id, budget=2 * BUDGET)
    node.lacks = True
    for _ in range(3):
        chain_fixture.chain_worker.step()
    node.lacks = False
    chain_fixture.settle_down()
    assert ledger.job(chain_fixture.job(job_id).chain_job or 0).deposited == 2 * BUDGET
    assert list_chain_differences(chain_fixture.chain, job_id) == []


def test_a_release_that_the_node_does_not_show_at_once_is_copied_later(
    chain_fixture: ChainFixture, ledger: Ledger, new_key: NewKey
) -> None:
    key = new_key()
    job_id, node = chain_fixture.running_job(), SilentProvider(url_of(ledger), exception_retry_configuration=None)
    worker = chain_fixture.joins(job_id, key)
    chain_fixture.restart(through(ledger, node))
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).reserved == PRICE
    fund_gas(ledger.web3, worker, 10**18)
    require_receipt(claims.release(ledger, key, chain_fixture.job(job_id).chain_job or 0, Units(0)))
    with chain_fixture.chain.begin() as work:
        work.get_one(Worker, worker).asking_until = 0.0
    node.lacks = True
    chain_fixture.chain_worker.step()
    node.lacks = False
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).reserved == 0


# --- an empty escrow -------------------------------------------------------------------------------------------------


def test_an_escrow_runs_dry_and_is_filled_again(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    """Earnings within it are paid to the last unit; nothing more is set aside until more comes in."""
    job_id, key = chain_fixture.running_job(budget=3 * PRICE), new_key()
    worker = chain_fixture.joins(job_id, key)
    chain_fixture.settle_down()
    for _ in range(3):
        chain_fixture.earns(job_id, worker)
        chain_fixture.settle_down()
    chain_fixture.clock.now += chain_fixture.policy.settle_every_s
    chain_fixture.settle_down()
    chain_job = chain_fixture.job(job_id).chain_job or 0
    assert chain_fixture.ledger.free(chain_job) == 0
    assert chain_fixture.ledger.account(chain_job, worker).reserved == 3 * PRICE
    settled_once(chain_fixture, job_id, worker, 3)
    chain_fixture.set_job(job_id, budget=BUDGET)
    chain_fixture.settle_down()
    assert chain_fixture.ledger.account(chain_job, worker).reserved > 3 * PRICE
    chain_fixture.earns(job_id, worker)
    settled_once(chain_fixture, job_id, worker, 4)
