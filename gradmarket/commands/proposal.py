"""`gradmarket job propose`: proposes the inner steps of a task and the codec of its answer, with reasons."""

from collections.abc import Mapping
from contextlib import suppress
from math import ceil
from typing import Annotated, Any, Final

import typer

from gradmarket.card_advice import count_cards, propose_precision
from gradmarket.commands.edge import DataOption, MarketOption, TokenOption
from gradmarket.commands.job_file import read_job
from gradmarket.commands.needs import in_bytes, task_download
from gradmarket.commands.proposing import CODECS, IDLE, HomeLink, Proposed, TaskSize, propose_momentum, propose_step
from gradmarket.commands.resources import load_document_and_bound
from gradmarket.endpoint import find_endpoint
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import payload_bytes
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import Downlink, ReadyModel
from gradmarket.market.rules.pricing import PLAIN
from gradmarket.market.step import GradientStep, LocalStep
from gradmarket.runner.task_cost import compute_task_cost
from gradmarket.terminal import echo_json, echo_text
from gradmarket.user_files import check_input

OUTER_RATE: Final = 0.7
"""DiLoCo's (Douillard et al. 2023)."""
LEASES: Final = 2
"""A lease is at least this many times a task's expected seconds."""


def propose(
    file: Annotated[str, typer.Argument(metavar="FILE.json", help="The job; - for standard input.")],
    tflops: Annotated[float, typer.Option(min=1e-6, help="TFLOP/s of a worker.")] = 10.0,
    down: Annotated[float, typer.Option(min=1e-3, help="Mbit/s that a worker fetches.")] = 100.0,
    up: Annotated[float, typer.Option(min=1e-3, help="Mbit/s that a worker sends.")] = 20.0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers in the job; one for each replica if none.")
    ] = None,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
) -> None:
    """Print the job with local steps and a codec that suit its model, a worker's link and its price, and the reasons.

    Posts nothing. The number of all steps and the job's cost stay.
    """
    posted, spec = read_job(file, lambda: find_endpoint(market, token, data).market())
    if spec.growth:
        raise Refused("growth: local steps change its rounds", "leave it out, and add it afterwards")
    _, info, bound = load_document_and_bound(spec, lambda: find_endpoint(market, token, data).market())
    one = compute_task_cost(info.document, bound, GradientStep(rows=spec.step.rows, microbatch=spec.step.microbatch))
    sent = {name: payload_bytes(info.layout, load_codec(name)) for name in CODECS}
    many = workers or spec.sizes.most * spec.replication.replicas
    links = {
        name: spec.model_copy(update={"downlink": Downlink(codec=_choose_downlink_codec(name))}) for name in CODECS
    }
    fetched = {name: task_download(other, info.layout, one.state, many) for name, other in links.items()}
    size, link = TaskSize(one.operations / (tflops * 1e12), fetched, sent), HomeLink(down, up)
    choice = propose_step(size, link, spec.rounds * spec.step.moves)
    classes = dict[str, int]()  # none where no market answers
    with suppress(MarketError), find_endpoint(market, token, data).market() as client:
        classes = client.prices().classes
    job = build_proposed_job(posted, spec, choice) | propose_field_of_cards(posted, spec, classes)
    check_input(JobSpec, job, "the proposed job")
    reasons = explain_proposal(spec, job, choice, size, link)
    if job.get("precision", spec.precision) != spec.precision:
        cards = f"{sum(count_cards(classes).values())} of {sum(classes.values())} workers"
        reasons.append(f"precision: {job['precision']}, for {cards} have cards; a processor is slower in it.")
    for reason in reasons:
        echo_text(reason, err=True)
    echo_json(job, indent=2)


def propose_field_of_cards(posted: dict[str, Any], spec: JobSpec, classes: Mapping[str, int]) -> dict[str, Any]:
    """Returns the precision that suits the workers there; nothing where the job names one, or its document has it."""
    if "precision" in posted or spec.reproducible or not isinstance(spec.model, ReadyModel):
        return {}
    chosen = propose_precision(classes)
    return {} if chosen == spec.precision else {"precision": chosen}


def _choose_downlink_codec(name: str) -> str:
    """Returns the codec of updates beside this one of answers."""
    return name if load_codec(name).GRADIENTS_ONLY else CODECS[0]


def build_proposed_job(posted: dict[str, Any], spec: JobSpec, choice: Proposed) -> dict[str, Any]:
    """Returns the job with the proposed steps: as many in all, at the same price a step."""
    job = posted | {"uplink": {"codec": choice.codec}, "downlink": {"codec": _choose_downlink_codec(choice.codec)}}
    lease_s = ceil(LEASES * choice.task_s)
    if lease_s > spec.deadlines.lease_s:
        job["deadlines"] = posted.get("deadlines", {}) | {"lease_s": lease_s}
    if choice.steps == spec.step.moves:
        return job
    job["rounds"] = ceil(spec.rounds * spec.step.moves / choice.steps)
    if spec.price.name == PLAIN:
        job["price"] = str(spec.price.most * choice.steps // spec.step.moves)
    step = posted["step"] | {"kind": "local", "steps": choice.steps}
    if isinstance(spec.step, LocalStep):
        return job | {"step": step}
    outer = {"name": "nesterov", "lr": OUTER_RATE, "momentum": propose_momentum(job["rounds"])}
    return job | {"step": step | {"optimizer": posted["optimizer"]}, "optimizer": outer}


def explain_proposal(spec: JobSpec, job: dict[str, Any], choice: Proposed, size: TaskSize, link: HomeLink) -> list[str]:
    """Returns one sentence for each field that is proposed."""
    steps, fp32, chosen = choice.steps, CODECS[0], choice.codec
    sent = f"fetching {in_bytes(size.down[chosen])} and sending {in_bytes(size.up[chosen])} takes {choice.link_s:.3g} s"
    of_task = f"{choice.idle:.0%} of a task's {choice.task_s:.3g} s"
    lines = [f"steps: {steps} of {size.step_s:.3g} s; {sent} at {link.down:g}/{link.up:g} Mbit/s, {of_task}."]
    if chosen == fp32:
        lines.append(f"codec: {fp32}, for a smaller one would spare few steps.")
    else:
        whole = f"{fp32} fetches {in_bytes(size.down[fp32])}, sends {in_bytes(size.up[fp32])}"
        lines.append(f"codec: {chosen}, for {whole} and would need {choice.plain_steps} steps for {IDLE:.0%}.")
    if steps != spec.step.moves:
        lines.append(f"rounds: {job['rounds']} in place of {spec.rounds}, so that as many steps are taken.")
    if steps != spec.step.moves and not isinstance(spec.step, LocalStep):
        lines.append(f"optimizer: Nesterov's of momentum {job['optimizer']['momentum']:g}, for {job['rounds']} rounds.")
    if steps != spec.step.moves and spec.price.name == PLAIN:
        more = f"{steps / spec.step.moves:g} times as much for as many times the work"
        price = f"price: {job['price']} of the token's smallest unit a task"
        lines.append(f"{price}, {more}; {choice.idle:.0%} of it pays for the link.")
    if job.get("deadlines", {}).get("lease_s", 0) > spec.deadlines.lease_s:
        lines.append(f"deadlines.lease_s: {job['deadlines']['lease_s']}, {LEASES} times what a task takes.")
    return lines
