"""The job as its requester posts it, and the publication that workers compute from.

Unknown fields are refused. Amounts are decimal strings in the token's smallest unit, digests `blake3:<hex>`.
"""

from pydantic import Field, model_validator

from gradmarket.market.features import BUDGETS, SPEC_FAULTS
from gradmarket.market.fields import SHORT_ID, DigestField, Part
from gradmarket.market.gradient.arithmetic import compute_learning_rate
from gradmarket.market.job_fields import JobFields
from gradmarket.market.job_parts import OnFailure, SecureAggregation
from gradmarket.market.rules import growth, secrets, verifiers
from gradmarket.market.rules.growth import RoundSizes
from gradmarket.market.rules.overlap import ROUNDS_BEHIND
from gradmarket.market.rules.pricing import worth
from gradmarket.market.rules.replication import BEST, JobChecks, fixed, proven
from gradmarket.market.rules.stopping import Ending, StopAtMetric, StopAtPatience
from gradmarket.market.step import GradientStep, LocalStep
from gradmarket.market.terms import Amount, Digest, Hash, Plan, blob_digest
from graphdoc.document.graph import Arithmetic
from graphdoc.encoding import canonical


class JobSpec(JobFields):
    """A training job. Workers see the model, and the data where it is not private."""

    @model_validator(mode="after")
    def _consistent(self) -> "JobSpec":
        if self.min_tasks is not None and self.min_tasks > self.tasks_per_round:
            raise ValueError("min_tasks: more than tasks_per_round")
        if why := growth.find_growth_fault(self.tasks_per_round, self.growth, self.rounds, self.min_tasks):
            raise ValueError(f"growth: {why}")
        if self.staleness and not self.leaves_tasks:
            raise ValueError('staleness: a round leaves tasks only where sampling is "epochs" and min_tasks is smaller')
        if self.overlap and self.leaves_tasks:
            raise ValueError('overlap: no round leaves tasks to the next: leave out min_tasks, or sampling at "rounds"')
        if (self.stake or self.vesting) and not self.audited:
            field = "stake" if self.stake else "vesting"
            raise ValueError(f"{field}: only an audit finds what it is lost for, and no task is audited")
        watched = any(isinstance(rule, StopAtMetric | StopAtPatience) for rule in self.stop)
        if watched and self.evaluation is None:
            raise ValueError("stop: a metric is watched only where evaluation names a partition")
        return self

    @model_validator(mode="after")
    def _continues(self) -> "JobSpec":
        if self.continue_from is not None and (why := self._not_continuing()):
            raise ValueError(f"continue_from: {why}")
        return self

    def _not_continuing(self) -> str:
        """Returns why this job cannot go on from another's end; empty where it can."""
        if self.privacy is not None or self.step.by_row:
            return "what the earlier rounds disclosed of a holder would not be counted: leave out privacy and per_row"
        if isinstance(self.step, LocalStep) and self.step.control_variates:
            return "holders keep their corrections by job: leave out control_variates"
        return ""

    @model_validator(mode="after")
    def _reproduces(self) -> "JobSpec":
        if self.reproducible and (why := self._not_reproducible()):
            raise ValueError(f"arithmetic: reproducible {why}")
        return self

    def _not_reproducible(self) -> str:
        """Returns why answers of this job would not have the same bits on every processor, or for nothing."""
        if self.precision != "fp32":
            return f"kernels compute in fp32, and precision is {self.precision}: set precision to fp32"
        if self.step.by_row:
            return "answers compare by bits, and noise by row gives none twice: leave out step.per_row"
        if self.private:
            return "answers are for others to compute again, and the rows stay with their holders: leave out arithmetic"
        if self.verifier.name != verifiers.DEFAULT:
            return f"answers agree by bits on every processor: set verifier to {verifiers.DEFAULT}"
        return ""

    @property
    def reproducible(self) -> bool:
        """Whether its answers have the same bits on every processor."""
        return self.arithmetic == "reproducible"

    @property
    def document_arithmetic(self) -> Arithmetic:
        """The arithmetic that the trained document names: that of a job in TF32 is TF32."""
        return "tf32" if self.precision == "tf32" else self.arithmetic

    @model_validator(mode="after")
    def _suits_features(self) -> "JobSpec":
        if why := next(filter(None, (find_fault(self) for find_fault in SPEC_FAULTS)), ""):
            raise ValueError(why)
        return self

    @property
    def repeatable(self) -> bool:
        """Whether anybody can compute its answers again: rows that stay with their holders exclude that."""
        return self.private is None

    @property
    def by_worth(self) -> worth.Settings | None:
        """The settings of pay by worth, where its answers are paid so."""
        return settings if isinstance(settings := self.price.settings, worth.Settings) else None

    @property
    def notice(self) -> str:
        """The visibility of model, data and answers to others, in words. Document and manifest are never hidden."""
        private = self.private is not None
        data = "what it is measured on" if private else "the training data of this job"
        anybody = ", and anybody may sign in as a worker."
        if self.visibility == "public":
            model = f"Everybody sees the model of this job. Workers see {data}{anybody}"
        elif self.visibility == "requester":
            model = (
                f"Workers see the architecture of the model and {data}{anybody} The model's parameters are seen by "
                "the requester, and by a worker while it computes on them."
            )
        else:
            model = f"Workers see {'the model of this job' if private else 'the model'} and {data}{anybody}"
        if not private:
            return model
        answers = "the sum of a round's answers, and none of them alone" if self.secure else "what each answers"
        bare = (
            " Warning: the sum has no noise, and a model made for it reads single rows off a sum: name privacy or "
            "step.per_row."
        )
        noised = self.privacy is not None or self.step.by_row
        warning = bare if self.secure and not noised else ""
        return f"{model} The holders' rows stay with them; the service sees {answers}.{warning}"

    @property
    def secure(self) -> SecureAggregation | None:
        """The collusion and dropouts that its sums tolerate, where its rounds are summed under masks."""
        return None if self.private is None else self.private.secure_aggregation

    @property
    def ending(self) -> Ending:
        """The conditions under which it stops."""
        budgets = [budget for build in BUDGETS if (budget := build(self)) is not None]
        return Ending(self.rounds, self.stop, self.deadlines.end, budgets)

    @property
    def publishes_loss(self) -> bool:
        """Whether rounds publish the mean training loss: neither noise nor masks hide it."""
        return self.privacy is None and self.secure is None and not self.step.by_row

    def step_in(self, round_number: int) -> GradientStep | LocalStep:
        """Returns the step that a task of this round computes."""
        return self.step.in_round(self.rounds_before + round_number, self.rounds_before + self.rounds)

    @property
    def rounds_before(self) -> int:
        """The number of rounds of the jobs that this one continues: schedules and draws count on from there."""
        return 0 if self.continue_from is None else self.continue_from.rounds

    @property
    def tasks_before(self) -> int:
        """The number of tasks of these rounds."""
        return 0 if self.continue_from is None else self.continue_from.tasks

    def rate_in(self, round_number: int) -> float:
        """Returns the learning rate of a round's update."""
        chosen, before = self.optimizer, self.rounds_before
        schedule, number, rounds = chosen.schedule, before + round_number, before + self.rounds
        return compute_learning_rate(schedule.name, chosen.lr, number, rounds, schedule.warmup)

    def seed_of(self, round_number: int, task: int) -> Hash:
        """Returns the seed of a task's randomness."""
        index = task + self.tasks_before if self.by_epochs else task
        return secrets.task_seed(self.seed, self.rounds_before + round_number, index)

    @property
    def tasks_needed(self) -> int:
        """The number of accepted tasks that close the job's first round, and the fewest that close any."""
        return self.needed_in(0)

    def needed_in(self, round_number: int) -> int:
        """Returns the number of accepted tasks that close this round."""
        return self.min_tasks or self.sizes.of(round_number)

    @property
    def all_needed(self) -> int:
        """The number of accepted tasks that close all rounds."""
        return self.rounds * self.min_tasks if self.min_tasks else self.sizes.all

    @property
    def sizes(self) -> RoundSizes:
        """The number of tasks of its own that each round has."""
        return growth.build_round_sizes(self.tasks_per_round, self.growth, self.rounds)

    @property
    def leaves_tasks(self) -> bool:
        """Whether a round may merge without some of its tasks, which then come first in the next."""
        return self.by_epochs and self.tasks_needed < self.tasks_per_round

    def tasks_of(self, round_number: int) -> range:
        """Returns the numbers of a round's own tasks."""
        first = self.sizes.before(round_number) if self.by_epochs else 0
        return range(first, first + self.sizes.of(round_number))

    def has_task(self, round_number: int, task: int) -> bool:
        """Whether a round of the job may have a task of this number."""
        return 0 <= round_number < self.rounds and 0 <= task < self.tasks_of(round_number).stop

    def place(self, round_number: int, task: int) -> int:
        """Returns the place of a task's rows in the order in which the job takes its rows, counted from 0.

        A job that continues another goes on in that one's order.
        """
        return self.tasks_before + (task if self.by_epochs else self.sizes.before(round_number) + task)

    @property
    def unaudited_plan(self) -> Plan | None:
        """The plan for a task in a class without auditor, where the policy refers to one: a plain majority."""
        votes = self.replication.replicas
        return Plan(votes, fixed.quorum(votes), votes) if self.plan(BEST).referred else None

    @property
    def unaudited_plans(self) -> tuple[Plan, ...]:
        """The same plan, then with a hidden seat in place of an audit; empty where audits settle nothing."""
        plain = self.unaudited_plan
        return (plain, proven.hide_seat(plain.first_wave)) if plain else ()

    @property
    def relieved_plans(self) -> tuple[Plan, ...]:
        """The plans for proven workers where audits outgrow the auditor; empty where no policy has a seat for that."""
        votes = self.replication.replicas
        return tuple(proven.relieve_auditor(votes, hidden) for hidden in (False, True)) if self.proof else ()

    @property
    def answered_at_once(self) -> bool:
        """Whether a right payload is paid whenever it arrives within its lease: no vote, and no merge without it."""
        return self.decided_alone and self.min_tasks is None

    @property
    def gain(self) -> float | None:
        """The most that a wrong gradient gains, in prices, where the policy compares stakes with it; else None."""
        return self.replication.gain

    @property
    def fullest_plan(self) -> Plan:
        """The plan of the tasks with the most workers."""
        return max(self.plan(), self.plan(BEST), key=lambda plan: plan.maximum)

    @property
    def on_failure(self) -> OnFailure:
        return "replay" if self.audit is None else self.audit.on_failure

    @property
    def final_after(self) -> int:
        """The newest rounds that a review may still take back; those of an overlap come on top."""
        named = None if self.audit is None else self.audit.final_after
        proves = self.proof is not None and self.on_failure == "replay"
        unnamed = proven.count_final_rounds(self.sizes.most, self.rounds) if proves else ROUNDS_BEHIND
        return (named or unnamed) + self.overlap

    @property
    def looks_back(self) -> bool:
        """Whether a conviction has all answers audited that are not final: the job keeps more rounds than it must."""
        return self.final_after > ROUNDS_BEHIND + self.overlap

    @property
    def refereed(self) -> bool:
        """Whether a referee hears answers that differ, where no quorum decides."""
        return self.disputes == "referee"

    @property
    def most_expensive(self) -> Amount:
        """The cost that no run can exceed: every replica of every task is requested and agrees."""
        return Amount(self.sizes.all * self.replication.max_replicas * self.price.most)

    @property
    def deposit(self) -> Amount:
        """The deposit that is required before anything runs."""
        return self.most_expensive if self.budget is None else self.budget


class Publication(Part):
    """The inputs of a job's workers, by digests. The offer's `spec` is this publication's digest."""

    job: str = Field(pattern=SHORT_ID)
    """The job's id, so that two jobs of one specification differ on-chain."""
    spec: JobSpec
    document: DigestField
    evaluation: DigestField | None
    parameters: DigestField
    manifest: DigestField
    metrics: DigestField | None = Field(default=None, exclude_if=lambda value: value is None)
    """The document of the metrics that it computes over all held-out rows together, where it has any."""

    @property
    def digest(self) -> Digest:
        return blob_digest(canonical(self.model_dump(mode="json")))

    @property
    def checks(self) -> JobChecks:
        """The facts against which its tasks' verdicts are proven."""
        spec = self.spec
        verifier, most = spec.verifier.name, spec.replication.max_replicas
        plans = spec.plan(), spec.plan(BEST), spec.unaudited_plans, spec.relieved_plans
        return JobChecks(self.digest, verifier, most, *plans, spec.refereed)
