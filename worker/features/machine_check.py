"""`gradmarket worker check`: the devices and speed of this machine, and its possible pay from a market's jobs."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from gradmarket.compute.cache import Cache
from gradmarket.compute.card_checks import check_cards
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.machine import Effort
from gradmarket.compute.own_machine import open_runners
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.manifest import Labelled
from gradmarket.market.money import TokenUnit
from gradmarket.market.release import find_release_difference
from gradmarket.market.rules.pricing import PricedWork
from gradmarket.market.terms import Amount, JobId
from gradmarket.market.views.job_views import ListedJob
from gradmarket.runner import Runner
from worker import wallet
from worker.feature import WorkerFeature
from worker.journal import Journal
from worker.markets.expected_pay import LOOKED_AT
from worker.options import DeviceOption, JsonOption, settings_of
from worker.protocol.client import COMMAND_WAIT_S, Credentials, MarketClient
from worker.protocol.policy import limits_of, runner_settings
from worker.protocol.worth import NOTHING, compute_hourly_pay, compute_least_price
from worker.settings import WorkerSettings

ROWS: Final = 256
WIDTH: Final = 1024
CLASSES: Final = 10
"""The model whose speed is shown: rows of a step, elements of a row and of both hidden layers, and classes."""
RUNS: Final = 3


@dataclass(frozen=True)
class CheckedJob:
    """A job's possible pay here: the most an hour in the token's smallest unit, or why it does not suit this
    machine."""

    job: JobId
    name: str
    why_not: str = ""
    price: Amount = NOTHING
    effort: Effort | None = None
    hourly: Amount = NOTHING
    expected: Amount | None = None
    """The market's measurement of one more worker's hourly earnings, where it has one."""


def check(
    device: DeviceOption = None,
    market: Annotated[str | None, typer.Option("--market", help="Address of a service whose jobs to look at.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Start cards and the computing child as `run` does; show card, memory, class, speed and faults.

    With --market, show which of its jobs this machine could do, and the most that they pay it an hour. Works for no
    market and opens no wallet. Ends with 1 where something is wrong.
    """
    settings, journal = settings_of(device=device, market=market), Journal(as_json)
    findings = [] if settings.device == "cpu" else list(check_cards())
    for found in findings:
        fix = f" Fix: {found.fix}." if found.fix else ""
        journal.report(
            "card", f"{found.name}: {found.detail}.{fix}", name=found.name, detail=found.detail, fix=found.fix
        )
    wanted = runner_settings(settings), settings.device, settings.threads, settings.max_memory
    with open_runners(*wanted) as (mine, *others):
        for one in others:
            journal.report("machine", f"{one.text} Its class is the same.", device=one.device, threads=one.threads)
        name, missing = mine.runner.determinism_class(), mine.runner.missing()
        speed = measure_speed(mine.runner)
        without = f" Its child runs without: {', '.join(missing)}." if missing else ""
        limits = f" A step may take {mine.memory / 2**30:.1f} GiB (--max-memory)."
        fast = f" A step of a model of 2 million parameters: {speed / 1e12:.3g} TFLOP/s."
        facts = {"device": mine.device, "threads": mine.threads, "class": name, "missing": list(missing)}
        facts |= {"memory": mine.memory, "flops": speed}
        journal.report("machine", f"{mine.text} Its class is {name}.{limits}{fast}{without}", **facts)
        if mine.warning:
            journal.report("card", mine.warning, why=mine.why)
        if market is not None:
            least = min(one.memory for one in (mine, *others))
            there = settings.model_copy(update={"device": mine.device, "max_memory": least})
            _show_jobs(there, mine.runner, journal, 1 + len(others))
    raise typer.Exit(1 if any(found.fix for found in findings) else 0)


def measure_speed(runner: Runner) -> float:
    """Returns floating-point operations a second, by the document's bound, of the fastest of a few whole steps."""
    runner.turn("speed", publishes=True)
    data = Labelled(dtype="float32", shape=(WIDTH,), classes=CLASSES)
    model = runner.publish("mlp", {"hidden": [WIDTH, WIDTH]}, data, seed=0)
    runner.turn("speed of a step")
    runner.load(model.document)
    operations = runner.bound(ROWS).operations
    batch: dict[str, NDArray[Any]] = {
        "x": np.linspace(-1, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH),
        "y": np.arange(ROWS, dtype=np.int64) % CLASSES,
    }
    taken = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        runner.run(model.parameters, batch)
        taken.append(time.perf_counter() - begun)
    return operations / min(taken)


def _show_jobs(settings: WorkerSettings, runner: Runner, journal: Journal, cards: int) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        client = MarketClient(settings.origins[0], lambda seconds: seconds < COMMAND_WAIT_S)
        stack.callback(client.close)
        facts = client.facts()
        if other := find_release_difference(facts.protocol, client.origin, "this worker"):
            raise Refused(*other)
        passer_by = wallet.load_or_create(folder, None)
        client.identify(Credentials(passer_by, passer_by.address, facts.chain_id))
        fetcher = Fetcher(
            Cache(folder / "cache", settings.max_disk),
            client.origin,
            settings.max_download,
            bearer=client.bearer,
            stores=settings.stores,
            data_servers=settings.data_servers,
        )
        stack.callback(fetcher.close)
        money, unit = TokenUnit.of(facts), Amount(int(facts.unit))
        limits = limits_of(settings, money)
        executor, jobs = Executor(runner, fetcher, limits), client.jobs()
        for job in jobs[:LOOKED_AT]:
            one = check_job(client, executor, job, unit, cards)
            text = f"{one.name}: not for this machine: {one.why_not}."
            if one.effort is not None:
                seconds, teraflop = one.effort.seconds, one.effort.flops / 1e12
                text = (
                    f"{one.name}: {seconds * 1000:.3g} ms a step of {teraflop:.3g} TFLOP, {teraflop / seconds:.3g} "
                    f"TFLOP/s. {money.text(one.price)} a gradient are {money.about(one.hourly)} an hour at most, were "
                    "there always a task and every gradient accepted."
                )
                if one.expected is not None:
                    text += f" By its newest rounds, one more worker earns {money.about(one.expected)} an hour."
                low = compute_least_price(limits.minimum, one.effort)
                if one.price < low:
                    text += f" It is under the {money.text(low)} a gradient that the minimums ask."
            fields = {"price": str(one.price), "hourly": str(one.hourly), "why_not": one.why_not}
            fields["expected"] = "" if one.expected is None else str(one.expected)
            journal.report("job", text, job=one.job, **fields)
        left = len(jobs) - LOOKED_AT
        if left > 0 or not jobs:
            journal.report("jobs", f"{left} more jobs run there." if jobs else f"{client.origin} runs no job now.")


def check_job(client: MarketClient, executor: Executor, job: ListedJob, unit: Amount, cards: int) -> CheckedJob:
    """Times a step of the job here, unless its needs are over this machine's limits; `unit` is the market's."""
    try:
        publication = client.job(job.id).publication
        if publication is None:
            return CheckedJob(job.id, job.name, "it has no publication that this version reads")
        executor.check_task_fits(publication)
        effort = executor.effort(publication)
    except MarketError as error:
        return CheckedJob(job.id, job.name, str(error))
    try:
        expected = client.pay(job.id).expected_hourly
    except MarketError:
        expected = None
    price = publication.spec.price.of(PricedWork(effort.flops, unit), None)
    hourly = Amount(cards * compute_hourly_pay(price, effort))
    return CheckedJob(job.id, job.name, "", price, effort, hourly, expected)


class MachineCheckFeature(WorkerFeature):
    name = "machine_check"
    commands = {"check": check}
