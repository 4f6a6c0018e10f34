"""A stranger's announcements, tokens, nodes and words: their effect on a worker, a terminal or others' money."""

from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from contracts import calls
from contracts.deployment import deploy_market
from contracts.ledger import Ledger
from contracts.local import LocalChain
from contracts.rpc import call_json_rpc
from contracts.token_moves import token_move
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.money import TokenUnit
from gradmarket.market.printable import find_text_fault
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Amount, Hash, JobId, Units
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.terminal import ShownConsole
from tests.attacks.contract import DEPOSIT, EARNED, FundedJob, chain_fixture
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.fee_token import market_over_fee_token, takes
from tests.onchain import DEPLOYER, HOUR, with_money
from tests.ops.signed_in import signed_in
from worker import Untrusted
from worker.features.discovery.announcements import Discovery
from worker.journal import Journal
from worker.money.account_store import AccountStore, JobAccount
from worker.money.chain_view import ChainView, choose_rpc
from worker.money.redeemer import Redeemer

HONEST = "https://honest.example"
EVIL = "\x1b]52;c;aGFja2Vk\x07\u202egnp.exe"
PAUSED = "0x60006000fd"
"""A token's code that refuses whatever it is asked."""


def announced(scene: Scene, ledger: Ledger, endpoint: str, units: int, count: int) -> int:
    """Announces jobs of one requester at `count` addresses; returns the block before them."""
    key, before = with_money(ledger, scene.key()), ledger.height()
    for number in range(count):
        expiry = ledger.block().time + HOUR
        terms = calls.OpenJob(Units(units), Amount(1), expiry, expiry + HOUR, address_of(key), Hash(bytes(32)))
        made = replace(terms, endpoint=endpoint.format(number))
        require_receipt(execute_call(ledger.web3, key, calls.open_job(ledger.deployment.contract, made)))
    return before


@attack("announcements without end", "named token: honest and none of them; any token: honest among four")
def sixteen_announcements_in_a_token_of_ones_own(scene: Scene) -> str:
    """Each of a thousand times the honest deposit, in a token that is worth nothing."""
    elsewhere = Ledger(scene.ledger.web3, deploy_market(scene.ledger.web3, DEPLOYER))
    first = announced(scene, scene.ledger, HONEST, 10**15, 1)
    announced(scene, elsewhere, "https://empty-{}.example", 10**18, 16)
    tokens = (scene.ledger.deployment.token,)
    named = [one.endpoint for one in Discovery(scene.ledger.web3, first + 1, tokens).look()]
    found = [one.endpoint for one in Discovery(scene.ledger.web3, first + 1).look(4)]
    none = "none of them" if not [one for one in named if "empty" in one] else f"{named}"
    among = "honest among four" if HONEST in found else f"{found}"
    return f"named token: {'honest' if HONEST in named else 'no honest one'} and {none}; any token: {among}"


def redeemer_of(made: FundedJob, folder: Path, said: StringIO) -> tuple[Redeemer, JobAccount]:
    ledger, place = made.job.ledger, made.job.ledger.deployment
    store = AccountStore(folder / "book.json")
    names = {"chain_id": place.chain_id, "contract": place.contract, "instance": place.instance}
    signer = address_of(made.job.signer)
    store.record_offer(JobAccount(**names, chain_job=made.job.id, job=JobId("a"), signer=signer, unit=Amount(1)))
    voucher, signature = made.job.voucher(made.worker, EARNED)
    store.take(store.account(ledger.domain(), made.job.id), voucher, signature, Units(0))
    view = ChainView(ledger, made.worker)
    redeemer = Redeemer(view, made.key, store, Journal(True, said), TokenUnit("GRAD", 18), None)
    return redeemer, store.account(ledger.domain(), made.job.id)


@attack("a token that refuses until claims end", f"while it refuses 0; after the end of claims {EARNED}")
def a_token_is_paused_until_claims_are_over(scene: Scene) -> str:
    chain = LocalChain.start(None)
    try:
        web3 = chain.connect()
        made = chain_fixture(scene, Ledger(web3, deploy_market(web3, DEPLOYER)))
        token = made.job.ledger.deployment.token
        sound = web3.eth.get_code(token).to_0x_hex()
        with TemporaryDirectory() as folder:
            redeemer, account = redeemer_of(made, Path(folder), StringIO())
            call_json_rpc(web3, "anvil_setCode", token, PAUSED)
            redeemer.redeem(account)
            call_json_rpc(web3, "anvil_setCode", token, sound)
            before = made.has
            call_json_rpc(web3, "evm_increaseTime", 3 * HOUR)
            call_json_rpc(web3, "evm_mine")
            redeemer.redeem(account)
        return f"while it refuses {before}; after the end of claims {made.has}"
    finally:
        chain.stop()


@attack("a fee on top of a payment", "on top: other jobs' money; lost: workers would get less; honest: nothing")
def a_token_that_takes_or_loses_a_part(scene: Scene) -> str:
    """The market's own money shows it, before a worker computes for it."""
    ledger = market_over_fee_token(scene.ledger.web3)
    announced(scene, ledger, HONEST, DEPOSIT, 1)
    seen, place = [], ledger.deployment
    for name, top, lost in (("on top", 4, 0), ("lost", 0, 4), ("honest", 0, 0)):
        takes(ledger, top, lost)
        move = token_move(ledger.web3, place.token, place.contract, address_of(scene.key()))
        words = "not seen" if move is None else move.fault or "nothing"
        short = next((part for part in ("other jobs' money", "workers would get less") if part in words), words)
        seen.append(f"{name}: {short}")
    return "; ".join(seen)


@attack("a node of a stranger's choice", "elsewhere refused; inside the network refused; both here believed")
def a_market_names_a_local_chain_s_node(scene: Scene) -> str:
    told = ChainFacts.model_validate(scene.requester.get("/v1/chain").json())

    def chosen(market: str, rpc: str) -> str:
        try:
            return "believed" if choose_rpc(None, told.model_copy(update={"rpc": rpc}), market) == rpc else "another"
        except Untrusted:
            return "refused"

    elsewhere = chosen("https://market.example", "https://node.example")
    inside, here = chosen("https://market.example", "http://127.0.0.1:8545"), chosen(scene.url, told.rpc or "")
    return f"elsewhere {elsewhere}; inside the network {inside}; both here {here}"


@attack("words that write to a terminal", "job 422; class 422; printed no control")
def names_with_escapes(scene: Scene) -> str:
    """OSC 52 writes the clipboard, U+202E turns a row around."""
    posted = scene.submit(name=EVIL)
    mine = {"Authorization": f"Bearer {signed_in(scene.url)}"}
    said = {"determinism_class": EVIL, "wait_s": 0}
    polled = httpx.post(f"{scene.url}/v1/work/poll", json=said, headers=mine)
    out = StringIO()
    ShownConsole(file=out, force_terminal=True).print(EVIL, markup=False, highlight=False)
    Journal(stream=out).report("refused", EVIL)
    controls = any(find_text_fault(line) for line in out.getvalue().splitlines())
    return f"job {posted.status_code}; class {polled.status_code}; printed {'a' if controls else 'no'} control"


@attack("a script from elsewhere", "docs own files alone; answers guessed 0")
def the_page_where_a_token_is_entered(scene: Scene) -> str:
    page = httpx.get(f"{scene.url}/docs")
    own = "script-src 'self'" in page.headers["content-security-policy"] and "//" not in page.text.split("<body>")[0]
    asked = ("/", "/docs", "/v1/health", "/nowhere", "/assets/docs.js")
    guessed = sum(httpx.get(scene.url + path).headers.get("x-content-type-options") != "nosniff" for path in asked)
    return f"docs {'own files alone' if own else 'others too'}; answers guessed {guessed}"
