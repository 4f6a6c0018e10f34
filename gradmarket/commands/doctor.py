"""`gradmarket doctor`: finds faults of this machine, each with its remedy."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from difflib import get_close_matches
from http import HTTPStatus
from pathlib import Path
from typing import Final

import typer

from contracts.toolchain import ToolMissing, locate_tool
from gradmarket.client.client_errors import ServiceProblem
from gradmarket.commands import checkup
from gradmarket.commands.checkup import CheckResult
from gradmarket.commands.edge import DataOption, JsonOption, MarketOption, TokenOption, print_json
from gradmarket.commands.reference import KINDS, list_setting_rows
from gradmarket.compute.card_checks import check_cards
from gradmarket.endpoint import data_folder
from gradmarket.endpoint import find_endpoint as find_place
from gradmarket.market.errors import MarketError
from gradmarket.market.terms import blob_digest
from gradmarket.terminal import echo_text
from requester.settings import OF_COMPOSE
from worker import settings

PYTHON: Final = (3, 11)
PORT: Final = 8700
TORCH_S: Final = 120
PREFIX: Final = "GRADMARKET_"


def doctor(
    market: MarketOption = None, token: TokenOption = None, data: DataOption = None, as_json: JsonOption = False
) -> None:
    """List this machine's faults and their fixes. Ends with 1 if anything is wrong."""
    cards = [CheckResult(one.name, one.detail, one.fix) for one in check_cards()]
    machine = [check_python(), check_torch(), *cards, check_anvil(), check_node()]
    service = [*check_service_data(data_folder(data)), *check_service(market, token, data)]
    findings = [*machine, *check_setting_names(os.environ), *service]
    if as_json:
        print_json([asdict(finding) | {"ok": not finding.fix} for finding in findings])
    else:
        for finding in findings:
            mark = "wrong" if finding.fix else "ok"
            result = f"{mark:>5}  {finding.name}: {finding.detail}" + (
                f"\n       fix: {finding.fix}" if finding.fix else ""
            )
            echo_text(result)
    raise typer.Exit(1 if any(finding.fix for finding in findings) else 0)


def check_setting_names(names: Iterable[str]) -> Iterator[CheckResult]:
    """Yields a finding for each name that looks like a setting and is none; a misspelt one silently changes nothing."""
    known = (
        {row["name"] for kind in KINDS.values() for row in list_setting_rows(kind)} | OF_COMPOSE | settings.OF_COMPOSE
    )
    for name in sorted(name for name in names if name.startswith(PREFIX) and name not in known):
        near = get_close_matches(name, known, 1)
        fix = f"set {near[0]}, or unset it" if near else "unset it; `gradmarket settings` lists all"
        yield CheckResult(f"setting {name}", "there is no setting of that name", fix)


def check_python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    return CheckResult("python", version, "" if sys.version_info[:2] >= PYTHON else "install Python 3.11 or newer")


def check_torch() -> CheckResult:
    """Imports torch in a child process, so that a crash stays there."""
    command = [sys.executable, "-c", "import torch; print(torch.__version__)"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_S, check=False)
    except subprocess.TimeoutExpired:
        return CheckResult("torch", f"does not import within {TORCH_S} s", "look for a busy disk or little memory")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return CheckResult("torch", last, "run `make install`")
    return CheckResult("torch", done.stdout.strip())


def check_anvil() -> CheckResult:
    return _check_tool("anvil", "needed for a local chain alone")


def check_node() -> CheckResult:
    return _check_tool("node", "needed to install Anvil and to compile contracts")


def _check_tool(name: str, purpose: str) -> CheckResult:
    try:
        return CheckResult(name, str(locate_tool(name)))
    except ToolMissing:
        return CheckResult(name, f"missing; {purpose}", f"run `make install`, or put {name} on the PATH")


def check_service_data(path: Path) -> list[CheckResult]:
    """Checks the service's settings and its data folder."""
    results = [checkup.check_data_folder(path), checkup.check_disk(path), checkup.check_key_modes(path)]
    found = checkup.load_settings_or_fault()
    if isinstance(found, CheckResult):
        return [*results, found]
    return [
        *results,
        checkup.check_database(found, path),
        *checkup.check_broker(found),
        *checkup.check_auditor(found, path),
    ]


def check_service(market: str | None, token: str | None, data: Path | None) -> list[CheckResult]:
    """Checks the service that the commands would use; if there is none, whether its port is free."""
    try:
        endpoint = find_place(market, token, data)
    except MarketError as error:
        return [
            CheckResult("service", str(error).splitlines()[0])
            if market is None
            else CheckResult("service", str(error), "name the service's address with --market"),
            check_port(PORT),
        ]
    parts = checkup.check_service_parts(endpoint.url)
    try:
        with endpoint.market() as client:
            facts = client.chain()
        chain = CheckResult("chain", f"{facts.chain_id}, contract {facts.contract}")
    except MarketError as error:
        chain = CheckResult("chain", str(error), "start the service with `gradmarket serve`, or look into its log")
    fix = "give the requester's with --token or GRADMARKET_TOKEN (its service shows where)"
    credentials = CheckResult("token", "there is one") if endpoint.token else CheckResult("token", "none", fix)
    try:  # a blob, which any known token may read: the service refuses another with 401
        if endpoint.token:
            with endpoint.market() as client:
                client.blob(blob_digest(b""))
    except ServiceProblem as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            credentials = CheckResult("token", error.detail, fix)
    except MarketError as error:
        credentials = CheckResult("token", f"there is one; nothing tested it: {error}")
    return [*parts, chain, credentials]


def check_port(number: int) -> CheckResult:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", number))
        except OSError as error:
            return CheckResult("port", f"{number}: {error}", "serve on another one with --port")
    return CheckResult("port", f"{number} is free")
