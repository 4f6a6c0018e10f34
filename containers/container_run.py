"""The demo in containers from start to end: build, start, post, watch, redeem, check, remove."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from containers import engine as engines
from containers import images
from containers import worker_containers as hiring
from containers.compose_project import ComposeProject, opened
from containers.worker_containers import WorkerContainers
from contracts.toolchain import ToolMissing
from gradmarket.client import RequesterClient
from gradmarket.demo import demo_outcome
from gradmarket.demo.demo_run import Clock, build_introduction, watch_job
from gradmarket.demo.report import build_report, print_report
from gradmarket.demo.workers import JOB
from gradmarket.market.money import TokenUnit
from gradmarket.market.views.job_views import JobView

LIMIT_S: Final = 900.0
Disturb = Callable[[JobView, ComposeProject, list[WorkerContainers]], None]


def nothing(_job: JobView, _compose_project: ComposeProject, _worker_containers: list[WorkerContainers]) -> None:
    """Does nothing to the job."""


def play(console: Console, keep: bool = False, build: bool = True, disturb: Disturb = nothing) -> dict[str, Any]:
    """Returns the same report as the demo without containers. `disturb` is called whenever the job is polled.

    Raises MarketError if something did not work at all. Removes everything that it made in any case, except images.
    """
    engine, source = engines.found(), _source()
    if build:
        console.print(f"Building images with {engine.program}; the first time this takes minutes", highlight=False)
        images.build(engine, source)
    clock, folder = Clock(limit_s=LIMIT_S), Path(tempfile.mkdtemp(prefix="gradmarket-demo-"))
    try:
        console.print(f"Starting the services of docker-compose.yml with {engine.program}", highlight=False)
        with opened(engine, source, folder) as (compose_project, ending), compose_project.market() as market:
            done = _run(console, clock, compose_project, market, disturb)
            if keep:
                ending.pop_all()
                _print_kept(console, compose_project)
        return done
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _run(
    console: Console, clock: Clock, compose_project: ComposeProject, market: RequesterClient, disturb: Disturb
) -> dict[str, Any]:
    chain = market.chain()
    job = market.submit(JOB).id
    console.print(build_introduction(market.url, chain, job), highlight=False, soft_wrap=True)
    worker_containers = hiring.hire(compose_project)
    watch_job(
        console,
        clock,
        lambda now: disturb(now, compose_project, worker_containers),
        market,
        job,
        TokenUnit.of(chain),
    )
    console.print("The workers redeem what they earned, release the rest and leave; the requester takes it back.")
    hiring.dismiss(worker_containers)
    ledger = compose_project.ledger()
    demo_outcome.wait_until_settled(market, ledger, job)
    outcome = demo_outcome.fetch_demo_outcome(market, ledger, job, worker_containers, compose_project.folder)
    print_report(console, outcome, TokenUnit.of(chain))
    return build_report(outcome, chain, {"total": clock.seconds, "first_accepted": clock.first_accepted})


def _source() -> Path:
    """Returns the folder of docker-compose.yml; raises ToolMissing if this is no checkout."""
    if not (images.SOURCE / "docker-compose.yml").is_file():
        raise ToolMissing("docker-compose.yml, which is in the repository and not in the package")
    return images.SOURCE


def _print_kept(console: Console, compose_project: ComposeProject) -> None:
    port = compose_project.ports["GRADMARKET_PORT"]
    console.print(
        f"It stays up: 127.0.0.1, port {port}; secrets are in {compose_project.folder / 'secrets'}, "
        f"containers are named {compose_project.name}….",
        highlight=False,
        soft_wrap=True,
    )
