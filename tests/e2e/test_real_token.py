"""docs/howto/real-token.md, its own lines, against a node with a testnet's chain id and a token of somebody else."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import httpx
import pytest
from typer.testing import CliRunner

from contracts.local import LocalChain
from contracts.rpc import LOCAL_CHAIN_IDS, call_json_rpc
from gradmarket import cli, mistakes
from gradmarket.market.signing import address_of
from tests.fee_token import market_over_fee_token
from tests.lanes import FULL
from tests.onchain import DEPLOYER, ETHER, NewKey
from tests.patience import PATIENCE_S, wait_until
from tests.processes import answers, free_port

SEPOLIA: Final = 11155111
PAGE: Final = Path(__file__).parents[2] / "docs" / "howto" / "real-token.md"


@pytest.fixture(scope="module")
def testnet() -> Iterator[LocalChain]:
    chain = LocalChain.start(None, chain_id=SEPOLIA)
    yield chain
    chain.stop()


def read_block() -> str:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S)
    return str(block)


@FULL
def test_the_page_s_lines_open_a_market_of_another_token(testnet: LocalChain, new_key: NewKey, tmp_path: Path) -> None:
    web3 = testnet.connect()
    assert SEPOLIA not in LOCAL_CHAIN_IDS
    token, sender = market_over_fee_token(web3).deployment.token, new_key()
    call_json_rpc(web3, "anvil_setBalance", address_of(sender), hex(ETHER))
    (tmp_path / "passphrase").write_text("a secret\n")
    said = read_block().replace("0xKEY", f"0x{sender.to_bytes().hex()}").replace("0xTOKEN", token)
    for node in ("https://sepolia.example", "https://other-node.example"):
        said = said.replace(node, testnet.url)
    port = free_port()
    said = said.replace("https://market.example", f"http://127.0.0.1:{port}").replace("\\\n", " ")
    export, deploy, serve, work = said.strip().splitlines()
    program = f"{Path(sys.executable).parent}/gradmarket"

    def start(*lines: str) -> subprocess.Popen[bytes]:
        script = "\n".join(lines).replace("gradmarket ", f"{program} ")
        return subprocess.Popen(["bash", "-ec", script], cwd=tmp_path, start_new_session=True)

    deployed = start(export, deploy)
    assert deployed.wait(PATIENCE_S) == 0
    with ExitStack() as stack:
        service = start(export, f"exec env {serve} --port {port}")
        stack.callback(service.wait, PATIENCE_S)
        stack.callback(service.terminate)
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/v1/health"))
        facts = httpx.get(f"http://127.0.0.1:{port}/v1/chain", timeout=PATIENCE_S).json()
        assert (facts["chain_id"], facts["token"]) == (SEPOLIA, token)
        worker = start(f"exec {work.partition('#')[0]} --json --data worker > worker.log 2>&1")
        stack.callback(worker.wait, PATIENCE_S)
        stack.callback(worker.terminate)
        told = tmp_path / "worker.log"
        wait_until(lambda: worker.poll() is not None or (told.exists() and '"joining"' in told.read_text()))
        assert worker.poll() is None, told.read_text()


@pytest.mark.parametrize("key", ["0xKEY", "0x12", ""])
def test_a_placeholder_key_is_refused_in_a_sentence(
    testnet: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("GRADMARKET_SENDER_KEY", key)
    done = CliRunner().invoke(cli.app, ["chain", "deploy", "--rpc", testnet.url, "--data", str(tmp_path)])
    assert done.exit_code == mistakes.CODE
    assert "GRADMARKET_SENDER_KEY" in done.stderr
    assert not (tmp_path / "deployment.json").exists()


def test_a_token_that_is_no_contract_is_refused_in_a_sentence(
    testnet: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADMARKET_SENDER_KEY", DEPLOYER.to_bytes().hex())
    where = ["--rpc", testnet.url, "--data", str(tmp_path)]
    done = CliRunner().invoke(cli.app, ["chain", "deploy", "--token", f"0x{'5' * 40}", *where])
    assert done.exit_code == mistakes.CODE, done.output
    assert "token" in done.stderr
