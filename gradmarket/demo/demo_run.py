"""The demo from start to end: start, post, watch, redeem, check, and leave nothing running."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from gradmarket.client import RequesterClient
from gradmarket.commands import progress
from gradmarket.commands.following import Show, follow_job
from gradmarket.demo import demo_outcome, kept_demos, service, workers
from gradmarket.demo.children import DemoFailed, DemoProcesses
from gradmarket.demo.report import build_report, print_report
from gradmarket.demo.workers import CAST, JOB
from gradmarket.market.errors import MarketError
from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import JobState
from gradmarket.market.views.job_views import JobView
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.public_audit.audit_run import AuditPlan, audit_job

SAMPLE: Final = 2
"""Tasks that the audit at the end computes again."""
LIMIT_S: Final = 300.0
"""Seconds after which a demo whose job has not ended has failed."""


@dataclass
class Clock:
    """Measures seconds since the demo began, and when the first gradient was accepted."""

    began: float = field(default_factory=time.monotonic)
    first_accepted: float = 0.0
    limit_s: float = LIMIT_S

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def look(self, job: JobView) -> None:
        if not self.first_accepted and job.accepted:
            self.first_accepted = self.seconds
        if self.seconds > self.limit_s:
            raise DemoFailed(f"after {self.limit_s:.0f} s the job is {job.state}: {job.reason}")


def run_demo(console: Console, keep: bool = False, within: Path | None = None) -> dict[str, Any]:
    """Returns the report. Raises MarketError if something did not work at all; cleans up in any case.

    All output is in a new folder of `within`. With `keep`, the folder, the service and its chain stay if all went well.
    """
    clock, folder = Clock(), Path(tempfile.mkdtemp(prefix=kept_demos.PREFIX, dir=within))
    console.print(f"Starting a chain, a service and {len(CAST)} workers in {folder}", highlight=False)
    with _compose_project(folder) as (children, ending):
        served = service.start_service(children, folder / "service")
        with served.place.market() as market:
            chain = market.chain()
            job = market.submit(JOB).id
            console.print(build_introduction(served.place.url, chain, job), highlight=False, soft_wrap=True)
            hired = workers.start_workers(children, served.place.url, folder / "workers")
            watch_job(console, clock, lambda _job: children.check(), market, job, TokenUnit.of(chain))
            console.print(
                "The workers redeem what they earned, release the rest and leave; the requester takes it back."
            )
            workers.end_workers(children, hired)
            ledger = served.ledger()
            demo_outcome.wait_until_settled(market, ledger, job)
            outcome = demo_outcome.fetch_demo_outcome(market, ledger, job, hired, folder)
            console.print("A stranger audits the job by public data, and computes some of its gradients again.")
            audited = audit_job(AuditPlan(served.place.url, job, folder / "audit", sample=SAMPLE), lambda *_told: None)
            # every rule was looked at and holds
            outcome.checks[f"a stranger's audit finds no fault, {SAMPLE} gradients computed again"] = (
                audited.sound and all(result.checked for result in audited.results)
            )
            print_report(console, outcome, TokenUnit.of(chain))
            done = build_report(outcome, chain, {"total": clock.seconds, "first_accepted": clock.first_accepted})
        if keep:
            ending.pop_all()
            kept_demos.mark_kept(folder)
            console.print(
                f"It stays up: {served.place.url} (documentation at {served.place.url}/docs), token in "
                f"{served.data / 'keys' / 'token'}, logs beside {served.child.log}.\n"
                f"All of it lies in {folder}. `gradmarket demo stop` ends service and chain and deletes the folder.",
                highlight=False,
                soft_wrap=True,
            )
    return done


def build_introduction(url: str, chain: ChainFacts, job: str) -> str:
    replication = JOB["replication"]
    return (
        f"{url} serves job {job}; chain {chain.chain_id}, contract {chain.contract}.\n"
        f"{JOB['tasks_per_round']} tasks a round, {replication['replicas']} replicas of each and up to "
        f"{replication['max_replicas']} where they disagree, votes on exact bits, replicas of a task kept apart by "
        f"{' and '.join(JOB['separation'])}.\nOf {len(CAST)} workers one turns its gradients round and one "
        "sends noise; the service does not know which."
    )


def watch_job(
    console: Console,
    clock: Clock,
    check: Show,
    market: RequesterClient,
    job: str,
    token: TokenUnit,
) -> None:
    """Watches until the job has ended; `check` may raise at every look, and at every try while the service is away.

    Raises DemoFailed unless the job finished.
    """
    with progress.display_progress(console, token) as display:

        def look(now: JobView) -> None:
            check(now)
            clock.look(now)
            display(now)

        def away(last: JobView, _error: MarketError, _tries: int) -> None:
            check(last)
            clock.look(last)

        ended = follow_job(market, job, look, away)
    if ended.state is not JobState.FINISHED:
        raise DemoFailed(f"the job is {ended.state}: {ended.reason}")


@contextmanager
def _compose_project(folder: Path) -> Iterator[tuple[DemoProcesses, ExitStack]]:
    """Yields the child processes of `folder`; at the end, also after errors, removes them, the chain and the folder."""
    with ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        ending.callback(service.stop_chain, folder / "service")
        children = DemoProcesses(folder / "logs")
        ending.callback(children.end)
        yield children, ending
