"""`gradmarket job plan`: estimates the needs, cost and safety of a job before it is posted."""

from collections.abc import Callable
from dataclasses import asdict, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from gradmarket import terminal
from gradmarket.card_advice import describe_cards
from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.commands.edge import DataOption, JsonOption, MarketOption, TokenOption, print_json
from gradmarket.commands.job_file import read_job_in
from gradmarket.commands.needs import Resources, Speed, estimate_large_model, list_resource_lines
from gradmarket.commands.resources import describe_limits, estimate_resources
from gradmarket.endpoint import find_endpoint
from gradmarket.market.errors import MarketError, NotFound, Refused
from gradmarket.market.features.disputes.questions import HEARING_S
from gradmarket.market.features.loss_change import UNSEEN
from gradmarket.market.features.private.holder_budget import build_holder_budget
from gradmarket.market.features.private.row_budget import RowSpending, build_row_spending
from gradmarket.market.features.reputation import BESIDE, COMPARABLE
from gradmarket.market.job import JobSpec
from gradmarket.market.money import LOCAL_TOKEN, TokenUnit
from gradmarket.market.rules.replication import BEST, proven
from gradmarket.market.stakes import Vesting
from gradmarket.market.step import RowSampling
from gradmarket.market.terms import Amount
from gradmarket.price_guide import describe_guidance
from gradmarket.terminal import echo_text
from gradmarket.trust.forecast import Assumed, Forecast, Row, compute_forecast
from gradmarket.trust.picture import draw_forecast_svg
from gradmarket.trust.played_rings import RINGS, Interval
from gradmarket.trust.scored_forecast import ScoredForecast, compute_scored_forecast
from gradmarket.user_files import check_writable, write_all

ONE_CLASS: Final = (
    "reproducible: x86 processors of any vendor, width and threads vote and audit together; cards take no task; "
    "a step takes about three times as long"
)


ShareOption = Annotated[list[float] | None, typer.Option("--colluders", help="Share of workers that act as one.")]
AuditOption = Annotated[
    float | None, typer.Option(min=0.0, max=1.0, help="Probability of an audit, in place of the job's own.")
]
AmountOption = Annotated[str, typer.Option(help='Like "0.5 GRAD", or in the smallest unit.')]
ParametersOption = Annotated[
    float | None,
    typer.Option(min=1, max=1e12, help="Plan a model of this many parameters, such as 7e9, in the job's place."),
]
SpeedOption = Annotated[float, typer.Option(min=1e-6, help="TFLOP/s of a worker.")]
LinkOption = Annotated[float, typer.Option(min=1e-3, help="Mbit/s of a worker's link.")]
GAINS: Final = (
    "For each share of colluders: tasks wrong at the end; its pay in prices for each gradient that it computes, where "
    "it is honest and computes once for its seats of a task (no vote or audit sees it), R f for 1 - (1 - f)^R with R "
    "votes; and where it computes nothing "
    "in tasks that it decides, and a caught one comes back under another identity, which is free (`proven` has it work "
    "alone first, so that its pay is at most this). Shares are of seats: who answers at once, or asks under many "
    "identities, has more of them than of the workers, but under `proven`."
)
DEFAULT_SHARES = (0.1, 0.2, 0.3, 0.5)


def _convert_to_prices(written: str, price: int, token: Callable[[], TokenUnit]) -> float:
    """Returns an amount in prices. The token is asked for only if the amount names a unit."""
    return (int(written) if written.isascii() and written.isdigit() else token().parse(written)) / price


def plan(
    file: Annotated[str, typer.Argument(metavar="FILE.json", help="The job; - for standard input.")],
    trust: Annotated[bool, typer.Option("--trust", help="How often a wrong gradient would be accepted.")] = False,
    colluders: ShareOption = None,
    workers: Annotated[int | None, typer.Option(min=2, help="Workers in the market; many if not given.")] = None,
    audit: AuditOption = None,
    stake: AmountOption = "0",
    saved: Annotated[str | None, typer.Option(help="Saved by not computing; the price if none.")] = None,
    benefit: AmountOption = "0",
    picture: Annotated[Path | None, typer.Option("--svg", help="File to draw it to.")] = None,
    tflops: SpeedOption = 10.0,
    mbit: LinkOption = 100.0,
    parameters: ParametersOption = None,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate a job's highest cost and its needs, or with --trust its safety against workers that act as one.

    Posts nothing. Sizes of uploads are fetched from the service; a ready model is made here, and needs none.
    """

    def service() -> RequesterClient:
        return find_endpoint(market, token, data).market()

    found = cache(lambda: _find_token(service))

    def token_of() -> TokenUnit:
        return found() or LOCAL_TOKEN

    _, spec = read_job_in(file, token_of)
    picture, price = picture and check_writable(picture), spec.price.most
    risked, own, gained = (
        _convert_to_prices(written, price, token_of) for written in (stake, saved or str(price), benefit)
    )
    given = colluders or DEFAULT_SHARES
    shares = tuple(Fraction(str(share)) for share in given)
    if not all(0 <= share <= 1 for share in shares):
        raise Refused("--colluders is a share from 0 to 1")
    assumed = Assumed(shares, workers, audit, risked, own, gained)
    scored = compute_scored_forecast(spec) if trust and spec.verifier.scored else None
    outlook = _build_forecast(spec, assumed) if picture or (trust and not scored) else None
    if picture and outlook:
        write_all({picture: draw_forecast_svg(outlook, workers)})
    speed = Speed(tflops, mbit, workers or spec.sizes.most * spec.replication.replicas)
    taken, limits = (None, list[str]()) if outlook or scored else _estimate_needs(spec, service, speed, parameters)
    outlooks = {"assumed": _build_assumed_fields(outlook, assumed), "trust": outlook.as_json()} if outlook else {}
    outlooks |= {"trust": scored.as_json()} if scored else {}
    guidance = "" if outlook or scored else _find_guidance(spec, service, taken)
    if as_json:
        takes = {"speed": asdict(speed), "takes": asdict(taken)} if taken else {}
        advice = {name: text for name, text in (("limits", limits), ("prices", guidance)) if text}
        print_json(_build_costs(spec) | outlooks | takes | advice)
    else:
        lines = [*(list_resource_lines(taken, speed) if taken else []), *([("prices", guidance)] if guidance else [])]
        _print_costs(spec, [*lines, *(("limit", limit) for limit in limits)], found())
        if outlook:
            _print_forecast(outlook, assumed)
        if scored:
            _print_scored_forecast(scored)


def _estimate_needs(
    spec: JobSpec, service: Callable[[], RequesterClient], speed: Speed, parameters: float | None
) -> tuple[Resources | None, list[str]]:
    """Returns the job's needs and obstacles; None where its model is not here."""
    if parameters is not None:
        taken = estimate_large_model(spec, int(parameters), speed)
        return taken, describe_limits(spec, int(parameters), taken.memory)
    try:
        return estimate_resources(spec, service, speed), []
    except (NotFound, ServiceUnreachable) as error:
        return None, [f"its needs are unknown without its model and data: {error.detail}; see --parameters"]


def _find_guidance(spec: JobSpec, service: Callable[[], RequesterClient], taken: Resources | None) -> str:
    """Returns others' prices and the workers' cards; empty where no market answers, or the token may not read them."""
    try:
        with service() as client:
            guide, token = client.prices(), TokenUnit.of(client.chain())
    except MarketError:
        return ""
    price = Amount(spec.price.most)
    lines = [describe_guidance(guide.paid, guide.taken, price, taken.operations if taken else None, token)]
    if taken:
        lines += describe_cards(guide.classes, spec.precision, taken.operations, taken.tokens, price, token)
    return "; ".join(lines)


def _find_token(service: Callable[[], RequesterClient]) -> TokenUnit | None:
    """Returns the market's token; None where no market answers, which a plan can do without."""
    try:
        with service() as client:
            return TokenUnit.of(client.chain())
    except MarketError:
        return None


def _print_costs(spec: JobSpec, takes: list[tuple[str, str]], token: TokenUnit | None) -> None:
    costs = {name.replace("_", " "): str(value) for name, value in _build_costs(spec).items()}
    for name in ("price", "at most"):
        costs[name] = (token or LOCAL_TOKEN).text(costs[name])
    if token is None:
        costs["token"] = f"{LOCAL_TOKEN.symbol} as on a local chain: no service answers"
    for name, value in [*costs.items(), *takes]:
        echo_text(f"{name:>14}  {value}")


def _build_forecast(spec: JobSpec, assumed: Assumed) -> Forecast:
    if spec.private:
        raise Refused("--trust is about votes and audits, and a private job has neither: see docs/private.md")
    if spec.verifier.scored:
        raise Refused("--svg draws votes and audits that compare answers; loss_change scores them: see --trust")
    return compute_forecast(spec, assumed)


def _build_costs(spec: JobSpec) -> dict[str, Any]:
    policy, panel, best = spec.replication, spec.panel, spec.plan(BEST).audit
    costs: dict[str, Any] = {
        "job": spec.name,
        "tasks": spec.all_needed,
        "replicas": f"{policy.replicas} to {policy.max_replicas}",
        "price": str(spec.price.most),
        "at_most": str(spec.most_expensive),
    }
    if spec.reproducible:
        costs["arithmetic"] = ONE_CLASS
    if spec.unaudited_plan:
        costs["checks"] = (
            "newcomers work alone, proven workers vote, an auditor settles splits; in a class without auditor a plain "
            f"majority of {spec.unaudited_plan.first_wave}"
        )
    if spec.proof:
        costs["audits"] = _describe_audits(spec)
        # a newcomer's first pay, by its place in the queue, and its first vote
        votes, turn = policy.replicas, proven.SHARE / spec.tasks_per_round
        costs["joining"] = (
            f"newcomers get one task in {proven.SHARE} (every second while fewer than {2 * votes} workers are proven, "
            f"all below {votes}): the k-th in the queue is first paid within {2 * turn:.3g} k rounds, and k at once "
            f"vote after about {spec.proof * turn:.3g} k"
        )
    if panel:
        costs["auditors"] = (
            f"{panel.count} of separate operators compute an audited task, {panel.agree} have to agree: "
            f"{panel.count * best:.3g} computations a task at p = {best:.0%}, more where they differ; no budget pays "
            "them"
        )
    if spec.vesting:
        costs["vest"] = _describe_vest(spec, spec.vesting)
    if spec.refereed:
        silent = max(HEARING_S, spec.deadlines.lease_s + spec.deadlines.upload_s)
        costs["disputes"] = (
            "workers whose answers differ are heard by the service: each computes the task again, three times a "
            f"hearing at most, and loses where it is silent for {silent} s; the service computes one operation"
        )
    if spec.verifier.scored:
        costs["not_seen"] = UNSEEN
    if spec.privacy:
        costs["privacy"] = _describe_privacy(spec)
    if rows := build_row_spending(spec):
        costs["row_privacy"] = _by_row(spec, rows)
    return costs


def _describe_audits(spec: JobSpec) -> str:
    """Describes the audited share of the tasks that proven workers agree on, and the usual share if it is lower."""
    votes, rate = spec.replication.replicas, spec.plan(BEST).audit
    usual = proven.compute_audit_rate(votes)
    raised = f"; {usual:.0%} would do in a long job" if rate > usual else ""
    kept, unnamed = spec.final_after - spec.overlap, proven.count_final_rounds(spec.sizes.most, spec.rounds)
    fewer = f", fewer than {unnamed}: lies of a patient ring may stay (audit.final_after)" if kept < unnamed else ""
    return (
        f"{rate:.0%} of unanimous tasks, all of the last {min(proven.LAST, spec.rounds)} rounds, where one "
        f"answers alone{raised}; one that fails has the answers of {kept} rounds audited{fewer}, and all of the "
        f"{proven.ALERT} rounds after it"
    )


def _describe_vest(spec: JobSpec, vesting: Vesting) -> str:
    """Describes the part of each worker's pay that waits, its time, and the loss of a liar: no budget pays the bond."""
    rate, price = spec.plan(BEST).audit, spec.price.most
    loses = rate * vesting.prices
    pays = "less than honest work" if loses > 1 else "all the same: audit more, or lock more prices"
    return (
        f"the last {vesting.prices} prices of each worker's pay stay locked for {vesting.window_s / 3600:.3g} h after "
        f"its last credit; {vesting.threshold} of {len(vesting.validators)} validators burn them for an answer that an "
        f"audit found wrong, {vesting.decide_s / 3600:.3g} h without a ruling pay the worker; an accusation costs a "
        f"bond of {vesting.bond / price:.3g} prices, burnt unless it holds. At p = {rate:.0%} a lie of a worker with "
        f"all of that locked loses {loses:.3g} prices on average and saves one: lying pays {pays}. It makes no answer "
        "right"
    )


def _describe_privacy(spec: JobSpec) -> str:
    """Describes how much the job's models may reveal of one holder."""
    budget = build_holder_budget(spec)
    if budget is None:
        return "none"
    rounds, asked = min(spec.rounds, budget.rounds), budget.asked
    spent = f"epsilon {budget.after(rounds):.4g} at delta {asked.delta:g} after {rounds} rounds"
    noise = asked.noise_multiplier * spec.norm_bound / spec.tasks_per_round
    ends = f"; of {spec.rounds} rounds it ends before the {rounds + 1}th" if rounds < spec.rounds else ""
    return f"{spent}{ends}; the mean of a round gets noise of deviation {noise:.3g}"


def _by_row(spec: JobSpec, rows: RowSpending) -> str:
    """Describes how much a holder's answers may reveal of one of its rows."""
    rounds, asked = min(spec.rounds, rows.rounds), rows.asked
    uses = rows.uses_after(rounds)
    spent = f"epsilon {rows.spent(rounds):.4g} at delta {asked.delta:g} after {rounds} rounds"
    steps = f"{uses} steps that draw it with probability {rows.rate:.3g}" if asked.by_chance else f"{uses} steps"
    reading = f"of a row in {steps}, as it is where its holder has no more than least_rows"
    other: RowSampling = "epochs" if asked.by_chance else "poisson"
    beside = replace(rows, asked=asked.model_copy(update={"sampling": other}))
    ends = f"; of {spec.rounds} rounds it ends before the {rounds + 1}th" if rounds < spec.rounds else ""
    noise = asked.noise_multiplier * asked.clip_norm / spec.step.rows
    instead = f"{beside.spent(rounds):.4g} with sampling {other}"
    return f"{spent} ({instead}), {reading}{ends}; a step's gradient gets noise of deviation {noise:.3g}"


def _build_assumed_fields(expected: Forecast, assumed: Assumed) -> dict[str, Any]:
    fields = {name: getattr(assumed, name) for name in ("workers", "stake", "saved", "benefit")}
    return fields | {"audit": expected.plan.audit, "shares": [float(share) for share in assumed.shares]}


def _print_forecast(expected: Forecast, assumed: Assumed) -> None:
    table = Table("colluders", "wrong task", "unseen", "in the whole job", "tasks until caught", "compute", "lean")
    for row in expected.rows:
        caught = "never" if row.tasks_until_caught is None else f"{row.tasks_until_caught:,.0f}"
        odds = (f"{value:.2%}" for value in (row.wrong_per_task, row.silently, row.wrong_in_job))
        lean = "any" if row.unseen_push is None else f"{row.unseen_push:.3g}"
        table.add_row(f"{row.colluding:.0%}", *odds, caught, f"{row.compute:.2f}", lean)
    terminal.print_table(table)
    # a table of a ring's gains under the job's plan and under others, a line each
    table = Table("plan", "compute", *(f"{row.colluding:.0%}: wrong, shares, lies" for row in expected.rows))
    for name, rows in (("this job", expected.rows), *((other.plan, other.rows) for other in expected.others)):
        table.add_row(name, f"{rows[0].compute:.2f}", *map(_describe_gain, rows))
    terminal.print_table(table)
    echo_text(GAINS)
    if expected.played is not None:
        # a table of the tasks that rings left wrong, a line for each kind of ring
        table = Table("ring of proven workers", *(f"{row.colluding:.0%}: wrong" for row in expected.rows))
        for ring in expected.played.rings:
            table.add_row(RINGS[ring.ring], *map(_describe_interval, ring.wrong))
        terminal.print_table(table)
        echo_text(
            f"Played {expected.played.plays} times with {expected.played.workers} workers, {expected.played.rounds} "
            f"rounds and {expected.played.tasks} tasks a round; ± is the interval of 95 % of the mean. The ring sees a "
            "whole task before it answers, and whoever is caught comes back at once under another identity."
        )
    if expected.returning is not None:
        echo_text(
            "Newcomers work alone and are audited for certain, so this job's figures are those of a ring that is all "
            f"proven. Where whoever is caught begins anew, any ring leaves {expected.returning:.2%} of a long job's "
            "tasks wrong, besides what it was proven for at the start. Proofs count by what they cost: min(answers, "
            f"{COMPARABLE:g} x their pay / this job's price, {COMPARABLE:g} x their operations / a gradient's here); "
            "what the one other requester paid that paid for most counts nothing, and what others paid at most "
            f"{BESIDE:g} times what this requester did: a ring that owns several requesters' tokens leaves "
            f"{(1 + BESIDE) * expected.returning:.2%}."
        )
    if expected.spent:
        by_share = ", ".join(f"{wrong:.2%}" for wrong in expected.spent)
        echo_text(
            f"A ring that is all proven when this job begins leaves {by_share} of its tasks wrong on average, at any "
            "speed and however patient or late it is: each lie that an audit finds takes a task's seats from it."
        )
    alarm, windows, rate = expected.drift, expected.windows, expected.plan.audit
    if alarm.answers < 2:
        echo_text("lean: rounds of one answer have nothing to compare it with, so no alarm on drift ever comes.")
    else:
        echo_text(
            f"lean: how far accepted answers that all push one way move the sum of {alarm.rounds} updates before an "
            f"alarm, in lengths of an honest answer's error (those of all honest ones come to "
            f"{alarm.honest_push:.3g}). No alarm comes before round {alarm.earliest}, and in {alarm.false_alarm:g} of "
            "honest jobs at most."
        )
    if windows is not None:
        echo_text(
            f"An audit repeats two of a task's {windows.count} windows, {windows.share:.3g} of its steps. A gradient "
            f"that is wrong in one window is found with p / {windows.count - 1} = {rate * windows.found:.3g}, one that "
            f"is wrong in m of them m times as often, and one that is wrong in the last with p = {rate:.3g}."
        )
    for line in _describe_deterrence(expected, assumed):
        echo_text(line)


def _print_scored_forecast(expected: ScoredForecast) -> None:
    table = Table("honest scores that pass", "noise at most", "convicted after", "cleared after", "noise paid")
    for row in expected.rows:
        scores = (f"{count:.0f} scores" for count in (row.until_convicted, row.until_cleared))
        table.add_row(f"{row.honest:.0%}", _describe_interval(row.noise), *scores, f"{row.noise_paid:.0%}")
    terminal.print_table(table)
    echo_text(
        f"Played {expected.plays} times for {expected.rounds} rounds: noise under any number of wallets takes each "
        "place that operators without a finished test may have. Their pay waits for their test; noise that leaves "
        "before it ends is paid for this share of its answers at most, at the job's end. Nothing is convicted or "
        f"cleared before {expected.trusted_runs} trusted runs are there. No figure can be given for what follows the "
        f"task's rows, which no score sees: {expected.not_seen} (measured in docs/results/loss_change.md)."
    )


def _describe_interval(wrong: Interval) -> str:
    return f"{100 * wrong.mean:.2f} ± {100 * wrong.half:.2f} %"


def _describe_gain(row: Row) -> str:
    shares, lies = (pay if pay is None else f"{pay:.2f}" for pay in (row.sharing_pay, row.lying_pay))
    return f"{row.wrong_at_end:.2%}, {shares or '-'}, {lies or 'any'}"


def _describe_deterrence(expected: Forecast, assumed: Assumed) -> list[str]:
    against = expected.deterrence
    if against.least_audit is None:
        if expected.plan.referred:
            return ["No stake is at risk: a lie that is found costs its pay and the standing of audited answers."]
        return ["No stake is at risk: nobody is deterred, whatever is audited. Votes are all that protects this job."]
    sign = ">" if against.deterred else "<="
    verdict = "lying costs more than it gains" if against.deterred else "lying pays"
    rate = expected.plan.audit * (expected.windows.found if expected.windows else 1.0)
    lines = [f"p {sign} (c + B) / S: {rate:.4g} {sign} {against.least_audit:.4g}: {verdict}."]
    if against.stake_needed is not None:
        lines.append(
            f"A liar is caught within {against.spoiled_before_caught:.0f} wrong gradients (95 %); "
            f"a stake of {against.stake_needed:.4g} prices covers them, {assumed.stake:.4g} are there."
        )
    return lines
