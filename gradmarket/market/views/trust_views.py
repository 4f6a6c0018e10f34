"""Finished audits, scores and accusations, and an operator's record in a class, as the API answers them."""

from gradmarket.market.fields import DeferredModel
from gradmarket.market.terms import (
    AccusationState,
    AuditState,
    CalibrationState,
    ChangeVerdict,
    Digest,
    PanelSeatState,
    TaskId,
)


class AccusationView(DeferredModel):
    """`case` and `event` are the contract's (market.stakes defines them); `until`: to contest, or to decide."""

    worker: str
    state: AccusationState
    case: str | None
    event: str | None
    amount: str
    until: str | None


class ChangeView(DeferredModel):
    """By how much a small step along a gradient lowered the loss on its task's rows, and on other draws of rows."""

    own: float
    others: list[float]
    score: float
    passes: bool


class ScoreView(DeferredModel):
    """A gradient that was scored (features.loss_change), and the auditor's own. The numbers follow the job's scores.

    `honest`: at least this share of honest gradients passes; null with too few trusted runs, and then nothing is
    weighed. `total`: of the operator's weights until then; at `convicts` or above the audit failed.
    """

    number: int
    operator: str
    accepted: ChangeView
    trusted: ChangeView
    honest: float | None
    total: float
    convicts: float
    verdict: ChangeVerdict


class PanelSeatView(DeferredModel):
    """One auditor of a panel (features.auditors). Its answer and salt are published as the audit's root is."""

    signer: str | None
    sealed: str | None
    signature: str | None
    run: int
    state: PanelSeatState
    root: str | None
    salt: str | None


class AuditView(DeferredModel):
    """`rate`: the probability that the task was drawn with; `root`: the auditor's result, of `runs` runs.

    The root is published once no further attempt at the task can use it. Where answers are
    scored the root decided nothing; the list of a job's audits has the `score`.
    """

    task: str
    round: int
    state: AuditState
    rate: float
    reason: str
    determinism_class: str
    root: str | None
    sketch: dict[str, str] | None
    """The sketch of the auditor's answer, under the wave's seed; only in the evidence of tasks compared by sketches."""
    window: int | None
    """The window of the task that was repeated beside the last one; null where the whole task was."""
    runs: int
    seconds: float | None
    ended_at: str | None
    accusations: list[AccusationView]
    score: ScoreView | None
    panel: list[PanelSeatView] | None = None


class KnownAnswers(DeferredModel):
    """Answers to tasks that are over and whose right answer is known.

    `caught`: wrong ones that votes outvoted; `false_alarms`: right ones that they did.
    """

    tasks: int
    answers: int
    wrong: int
    caught: int
    false_alarms: int


class PanelFigures(DeferredModel):
    """The results of the panels of a job's audits: `auditors` that have to `agree`, of separate operators."""

    auditors: int
    agree: int
    decided: int
    disagreed: int
    wrong: int
    withheld: int
    barred: int


class TrustView(DeferredModel):
    """How well a job's checks find wrong answers (features.planted), by the tasks that are over.

    `planted`: an auditor had computed them before anybody answered; `audited`: others that were drawn for an audit.
    `catch_rate`: of wrong answers, the share that votes caught, and audits with the job's probability. Null without any
    wrong answer, as `false_alarm_rate` without any right one.
    """

    tasks: int
    share: float | None
    """The share of the tasks that are over whose right answer is known."""
    planted: KnownAnswers
    audited: KnownAnswers
    catch_rate: float | None
    false_alarm_rate: float | None
    auditor_errors: int
    """Planted answers that an audit refuted: the auditor's own errors."""
    panels: PanelFigures | None = None


class ReputationView(DeferredModel):
    """`standing`: at 95 % the least share of honest answers that the passed audits show (features.reputation)."""

    determinism_class: str
    standing: float
    passed: int
    failed: int
    failed_at: str | None


class TensorView(DeferredModel):
    """`largest`: the deviation seen; `threshold`: ten times that, the bound for ballots once it is calibrated."""

    name: str
    largest: float
    threshold: float


class ComparedView(DeferredModel):
    """A task that passed its audit, and the payload roots that trusted machines of the two classes found."""

    task: TaskId
    roots: tuple[Digest, Digest]


class PairView(DeferredModel):
    """`confidence`: that 95 % of honest runs lie below the largest deviation; `tasks`: the newest of the `runs`."""

    classes: tuple[str, str]
    state: CalibrationState
    reason: str
    runs: int
    runs_needed: int
    confidence: float
    tensors: list[TensorView]
    tasks: list[ComparedView]
    changed_at: str | None


class CalibrationView(DeferredModel):
    """`family`: jobs of one document, data, step, precision and codec, which share their thresholds."""

    verifier: str
    family: str | None
    pairs: list[PairView]
