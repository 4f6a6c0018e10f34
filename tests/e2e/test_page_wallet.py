"""A job is funded from the page by a wallet in the browser: it signs with its own key, against the market's chain."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import pytest
from eth_account import Account
from playwright.sync_api import Browser, Page, expect
from web3 import Web3
from web3.exceptions import Web3Exception

from contracts import calls
from contracts.ledger import Ledger
from contracts.local import development_key
from contracts.transactions import execute_call, require_receipt
from gradmarket.demo import service
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.workers import JOB
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Amount
from tests.chromium import chromium, needs_chromium
from tests.lanes import FULL
from tests.patience import wait_until

OWNER, STRANGER = development_key(5), development_key(6)
PROVIDER: Final = """window.ethereum = { request: async ({ method, params }) => {
  const told = await window.wallet(method, params || []);
  if (told.error) throw Object.assign(new Error(told.error.message), { code: told.error.code });
  return told.result;
} };"""
RICH: Final = 10**24

pytestmark = [needs_chromium, FULL]


@dataclass
class BrowserWallet:
    """An EIP-1193 wallet with one account, which follows its user."""

    web3: Web3
    key: Any = OWNER
    refuses: bool = False
    chain: int = 31337
    switches: bool = True
    asked: list[str] = field(default_factory=list)

    def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        self.asked.append(method)
        if method == "eth_chainId":
            return {"result": hex(self.chain)}
        if method == "wallet_switchEthereumChain":
            if not self.switches:
                return {"error": {"code": 4902, "message": "Unrecognized chain ID"}}
            self.chain = int(params[0]["chainId"], 16)
            return {"result": None}
        if method == "eth_requestAccounts":
            return {"result": [str(address_of(self.key)).lower()]}
        if method == "eth_sendTransaction":
            return self._send(params[0])
        return {"result": self.web3.provider.make_request(method, params).get("result")}  # type: ignore[arg-type]

    def _send(self, asked: dict[str, str]) -> dict[str, Any]:
        """As a wallet: chooses nonce, gas and fees, and refuses a call that would revert now."""
        if self.refuses:
            return {"error": {"code": 4001, "message": "User rejected the request."}}
        sender = Web3.to_checksum_address(asked["from"])
        call = {"from": sender, "to": Web3.to_checksum_address(asked["to"]), "data": asked["data"]}
        call["value"] = int(asked["value"], 16)  # type: ignore[assignment]
        try:
            gas = self.web3.eth.estimate_gas(call)  # type: ignore[arg-type]
        except Web3Exception as error:
            return {"error": {"code": -32603, "message": str(error)}}
        price, nonce = self.web3.eth.gas_price, self.web3.eth.get_transaction_count(sender, "pending")
        transaction = {**call, "gas": gas, "gasPrice": price, "nonce": nonce, "chainId": self.chain}
        signed = Account.sign_transaction(transaction, self.key.to_bytes())
        return {"result": self.web3.eth.send_raw_transaction(signed.raw_transaction).to_0x_hex()}


@dataclass(frozen=True)
class Elsewhere:
    """A market whose jobs' money another key owns than the service's."""

    url: str
    token: str
    ledger: Ledger

    def post(self) -> str:
        spec = {**JOB, "name": "funded by a wallet", "rounds": 2}
        posted = httpx.post(f"{self.url}/v1/jobs", json=spec, headers={"Authorization": f"Bearer {self.token}"})
        posted.raise_for_status()
        return str(posted.json()["id"])

    def job(self, job: str) -> dict[str, Any]:
        told: dict[str, Any] = httpx.get(f"{self.url}/v1/jobs/{job}").json()
        return told


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    folder = tmp_path_factory.mktemp("wallet")
    children = DemoProcesses(folder / "logs")
    owner: Address = address_of(OWNER)
    try:
        served = service.start_service(children, folder / "service", {"GRADMARKET_OWNER": owner})
        ledger = served.ledger()
        mint = calls.mint(ledger.deployment.token, owner, Amount(RICH))
        require_receipt(execute_call(ledger.web3, development_key(), mint))
        token = (served.data / "keys" / "token").read_text().strip()
        yield Elsewhere(served.place.url, token, ledger)
    finally:
        children.end()
        service.stop_chain(folder / "service")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@contextmanager
def shown(browser: Browser, market: Elsewhere, job: str, wallet: BrowserWallet | None) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    if wallet is not None:
        page.expose_function("wallet", wallet.request)
        page.add_init_script(PROVIDER)
    page.goto(f"{market.url}/jobs/{job}")
    expect(page.locator(".state")).to_have_text("awaiting funds")
    page.locator("[name=token]").fill(market.token)
    page.get_by_role("button", name="Use it").click()
    yield page
    context.close()


def fund(page: Page, amount: str = "") -> None:
    page.locator("[name=amount]").fill(amount)
    page.get_by_role("button", name="Fund").click()


def test_a_wallet_funds_a_job_and_later_adds_to_it(market: Elsewhere, browser: Browser) -> None:
    job, wallet = market.post(), BrowserWallet(market.ledger.web3, chain=1)
    with shown(browser, market, job, wallet) as page:
        fund(page)
        expect(page.locator("#steered")).to_contain_text("Sent.")
        expect(page.locator(".state")).to_have_text("running")
        assert "wallet_switchEthereumChain" in wallet.asked
        costs = market.job(job)["costs"]
        assert costs["deposited"] == costs["budget"]
        fund(page, "0.5 GRAD")
        expect(page.locator("#steered")).to_contain_text("Sent.")
        more = str(int(costs["budget"]) + 5 * 10**17)
        assert market.job(job)["costs"]["budget"] == more
        wait_until(lambda: market.job(job)["costs"]["deposited"] == more, meanwhile=lambda: page.wait_for_timeout(100))
        assert wallet.asked.count("eth_sendTransaction") == 5, "approve, open, let the service pay; approve, add"
        assert market.ledger.balance(address_of(OWNER)) == RICH - int(more)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"refuses": True}, "The wallet refused to sign"),
        ({"key": STRANGER}, f"belongs to {address_of(OWNER)}"),
        ({"chain": 1, "switches": False}, "Unrecognized chain ID"),
    ],
)
def test_a_wallet_that_does_not_sign_shows_its_reason_and_nothing_is_sent(
    market: Elsewhere, browser: Browser, how: dict[str, Any], told: str
) -> None:
    job, wallet = market.post(), BrowserWallet(market.ledger.web3, **how)
    nonce = market.ledger.nonce(address_of(OWNER))
    with shown(browser, market, job, wallet) as page:
        fund(page)
        expect(page.locator("#steered")).to_contain_text(told)
    assert market.job(job)["state"] == "awaiting_funds"
    assert market.ledger.nonce(address_of(OWNER)) == nonce


def test_the_page_without_a_wallet_shows_the_transactions_to_sign(market: Elsewhere, browser: Browser) -> None:
    with shown(browser, market, market.post(), None) as page:
        fund(page)
        expect(page.locator("#steered")).to_contain_text("Sign these 2 transactions with the owner's wallet")


@pytest.mark.parametrize("amount", ["much", "0.5", "0.5 EUR", "-1 GRAD", "1e18 GRAD GRAD", "0." + "1" * 19 + " GRAD"])
def test_a_malformed_amount_is_refused_before_the_wallet_is_asked(
    market: Elsewhere, browser: Browser, amount: str
) -> None:
    job, wallet = market.post(), BrowserWallet(market.ledger.web3)
    with shown(browser, market, job, wallet) as page:
        fund(page, amount)
        expect(page.locator("#steered")).to_contain_text("is no amount: write it like 0.5 GRAD")
    assert wallet.asked == []
