"""Accusations that are contested: a validator that computes the task anew finds the liar, and whoever lies about it."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from eth_keys.datatypes import PrivateKey

from contracts import calls, stakes
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Digest, Hash
from gradmarket.runner import Runner, RunnerSettings
from tests.attacks.audits import ALWAYS, WRONG, Auditor
from tests.attacks.patience import ALONE, AT_RISK, BOND, STAKE, joined
from tests.attacks.registry import attack
from tests.attacks.scene import UNIT, Posted, Scene
from tests.kit.behaviour import HONEST, TRIPLED, Behaviour
from tests.onchain import HOUR, with_money
from tests.patience import wait_until
from worker import durable, wallet


def contested(scene: Scene, behaviour: Behaviour, found: Digest | None) -> str:
    """The validator's ruling, and the rest of the stake and of the requester's bond."""
    judge = scene.rich()
    windows = {"slash_s": 20 * HOUR, "contest_s": 3 * HOUR, "decide_s": 3 * HOUR}
    terms = {"validators": [address_of(judge)], "bond": str(BOND * UNIT), **windows}
    job = scene.post(audit=ALWAYS, replication=ALONE, stake=terms)
    with Runner(RunnerSettings()) as runner:
        here = runner.determinism_class()
    worker, auditor = job.scripted(behaviour), Auditor(job, here)
    worker.determinism_class = here
    joined(job, worker)
    job.play(worker, done=auditor.claim)
    if (work := auditor.claim()) is not None:
        runs = [auditor.report_run(work, run, found) for run in range(2)]
        assert runs == ["again", "enough"], runs
    wait_until(lambda: accusation(job).get("state") == "open", "the accusation")
    case = str(accusation(job)["case"])
    scene.requester.post(f"/v1/jobs/{job.id}/cancel").raise_for_status()
    market = scene.ledger.deployment.contract
    contest = calls.contest(market, Hash(bytes.fromhex(case[2:])))
    require_receipt(execute_call(scene.ledger.web3, with_money(scene.ledger, worker.key), contest))
    said = examined(scene, job, judge, case)
    left = stakes.staker(scene.ledger, worker.address).amount // UNIT
    return f"{said}; of {STAKE} staked {left} left"


def accusation(job: Posted) -> dict[str, Any]:
    told = [each for audit in job.fetch_view("/audits")["items"] for each in audit["accusations"]]
    return told[0] if told else {}


def examined(scene: Scene, job: Posted, judge: PrivateKey, case: str) -> str:
    """`gradmarket wallet case examine --rule`, by the validator."""
    with TemporaryDirectory() as folder:
        durable.write_file_atomically(Path(folder) / wallet.PLAIN, judge.to_bytes().hex().encode())
        words = ["wallet", "case", "examine", job.id, case, "--rule", "--market", scene.url, "--data", folder, "--json"]
        command = [sys.executable, "-c", "from gradmarket.cli import app; app()", *words]
        done = subprocess.run(command, capture_output=True, text=True)  # others print beside it
        if done.returncode:
            return f"cannot tell: {done.stderr}"
        said, ruled = [json.loads(line) for line in done.stdout.splitlines()]
    return f"{'guilty' if said['guilty'] else 'not guilty'}, {ruled['event']}"


@attack("a lie with a stake behind it", f"guilty, decided; of {STAKE} staked {STAKE - AT_RISK} left", alone=True)
def a_liar_that_contests(scene: Scene) -> str:
    """The validator's own machine computes the task twice, with the auditor's result."""
    return contested(scene, TRIPLED, None)


@attack("an accusation of what never was", f"not guilty, decided; of {STAKE} staked {STAKE} left", alone=True)
def an_auditor_that_lies_about_an_honest_answer(scene: Scene) -> str:
    """The task comes out as the worker answered; the requester's bond is burnt."""
    return contested(scene, HONEST, WRONG)
