"""The demo's job across containers, while a worker, an API process and PostgreSQL are killed and restarted under it."""

import subprocess
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from containers import engine as engines
from containers.compose_project import ComposeProject
from containers.container_run import play
from containers.worker_containers import WorkerContainers
from gradmarket.demo.workers import PRICE
from gradmarket.market.views.job_views import JobView
from tests.lanes import FULL
from tests.patience import TEST_S

pytestmark = FULL

Report = dict[str, Any]


class Misfortunes:
    """Each befalls the job once, at its number of accepted gradients."""

    def __init__(self) -> None:
        self.waiting = [(3, self.worker_killed), (12, self.door_restarted), (24, self.database_restarted)]
        self.happened: list[str] = []
        self.project = ""

    def __call__(self, job: JobView, compose_project: ComposeProject, workers: list[WorkerContainers]) -> None:
        self.project = compose_project.name
        if self.waiting and job.accepted >= self.waiting[0][0]:
            _, happen = self.waiting.pop(0)
            self.happened.append(happen.__name__)
            happen(compose_project, workers)

    def worker_killed(self, _compose_project: ComposeProject, worker_containers: list[WorkerContainers]) -> None:
        """Kills an honest one at work: it holds a lease at nearly every moment. It comes back to its files on disk."""
        worker_containers[0].kill()
        assert not worker_containers[0].running
        worker_containers[0].start_again()

    def door_restarted(self, compose_project: ComposeProject, _worker_containers: list[WorkerContainers]) -> None:
        compose_project.restart("requester-1")

    def database_restarted(self, compose_project: ComposeProject, _worker_containers: list[WorkerContainers]) -> None:
        compose_project.restart("postgres")


@pytest.fixture(scope="module")
def played() -> tuple[Report, str, Misfortunes]:
    """Returns the report, the output, and the job's misfortunes."""
    if lacks := engines.why_not():
        pytest.skip(f"no container runs here: {lacks}")
    printed, misfortunes = StringIO(), Misfortunes()
    report = play(Console(file=printed, width=120), disturb=misfortunes)
    return report, printed.getvalue(), misfortunes


@pytest.mark.timeout(TEST_S * 2)  # images are built first
def test_the_job_ends_well_whatever_befell_it(played: tuple[Report, str, Misfortunes]) -> None:
    report, printed, misfortunes = played
    assert misfortunes.happened == ["worker_killed", "door_restarted", "database_restarted"]
    assert report["ok"], printed
    assert report["accuracy"] >= 0.95


def test_honest_workers_have_their_pay_on_chain_and_cheats_nothing(played: tuple[Report, str, Misfortunes]) -> None:
    workers = played[0]["workers"]
    assert sorted(one["behaviour"] for one in workers) == ["honest", "honest", "honest", "noise", "sign_flip"]
    for one in workers:
        accepted = one["accepted"] if one["behaviour"] == "honest" else 0
        assert int(one["balance"]) == int(one["earned"]) == accepted * PRICE


def test_nothing_of_it_is_left(played: tuple[Report, str, Misfortunes]) -> None:
    engine, project = engines.found(), played[2].project
    assert project.startswith("gradmarket-demo-")
    for what in (["ps", "--all"], ["volume", "ls"], ["network", "ls"]):
        listed = subprocess.run([engine.program, *what], capture_output=True, text=True, check=True).stdout
        assert project not in listed
