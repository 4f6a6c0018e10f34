"""Computes a job's tasks again and merges its rounds again, from the publication on: rules 8 and 9 of the proof.

The answers come from this machine alone, so nothing but the publication and the rows is taken from the market: an
answer that is equal to the accepted root is what the round merged. The audit's folder keeps the finished work, and an
interrupted audit goes on after its last whole round.
"""

import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.task_run import layout_of
from gradmarket.market.admissible import move_of
from gradmarket.market.errors import PayloadRefused, Refused, RunnerFailed
from gradmarket.market.gradient.aggregators import configure_aggregator
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.gradient.published_update import UpdateDraft, update_bytes
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe, merged_shards
from gradmarket.market.gradient.round_update import advance_model, build_model_state
from gradmarket.market.job import JobSpec
from gradmarket.market.rules.classes import list_checked_classes
from gradmarket.market.terms import Digest, blob_digest
from gradmarket.market.wire.evidence import PublishedRound, PublishedTask
from gradmarket.market.wire.poll import digest_of, hash_of
from gradmarket.network import DownloadFailed, DownloadRefused, PartitionUnfit
from gradmarket.public_audit.job_proof import Clause, ClauseFinding, ClauseResult, EarlierJob, JobRecord
from gradmarket.public_audit.job_records import Progress
from gradmarket.runner import DocumentInfo, Runner
from graphdoc.encoding import Bytes
from graphdoc.tensors import pack_tensors, unpack_tensors, view_tensors
from worker import durable

STATE: Final = "replayed.json"
MEMORY: Final = "memory.safetensors"
NOT_SERVED: Final = "tasks of rounds whose parameters nobody serves: --all merges the rounds before them again"
MergedRecord = dict[str, Any]
"""The job, by its publication and in the contract, the results of its rounds, and the roots of its tasks by their ids.
"""
PARAMETERS: Final = "parameters.safetensors"


def find_replayed_state(folder: Path, earlier: EarlierJob) -> Digest | None:
    """Returns the digest of the optimizer's state after the job's last round as an earlier audit in the folder computed
    it; None where none of this publication came so far, or its parameters differ.
    """
    last = earlier.closed[-1]
    try:
        state = json.loads((folder / STATE).read_bytes())
        parameters, memory = state["digests"]
        job = state["record"]["job"]
    except (FileNotFoundError, ValueError, KeyError):
        return None
    merged = (job, state["done"], parameters)
    return Digest(memory) if merged == (_name_job(earlier), last.number, last.updated) else None


def _name_job(record: JobRecord | EarlierJob) -> list[str | int]:
    return [record.publication.digest, record.opened.job]


def find_obstacle(spec: JobSpec) -> str:
    """Returns why nobody else can compute the job's answers again; empty where anybody can."""
    return "every answer: the rows stay with their holders" if spec.private is not None else ""


@dataclass
class Recomputation:
    """Computes with `executor`, whose machine is of `determinism_class`; `folder` is the audit's of this job."""

    record: JobRecord
    runner: Runner
    executor: Executor
    fetcher: Fetcher
    folder: Path
    progress: Progress
    equal: set[str] = field(default_factory=set)
    """Tasks that were computed again, with the accepted root."""
    faults: list[ClauseFinding] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def skip(self, why: str) -> tuple[ClauseResult]:
        return (ClauseResult(Clause.GRADIENTS, 0, "tasks", unseen=(why,)),)

    def compute_sample(self, count: int) -> ClauseResult:
        """Computes `count` merged tasks again, drawn by this machine's own randomness among those that can be begun."""
        chosen = [task for one in self.record.closed for task in self.record.find_merged_tasks(one.number)]
        random.SystemRandom().shuffle(chosen)
        done = 0
        for task in chosen:
            if done == count:
                break
            self._compute_task(task)
            if (computed := len(self.equal) + len(self.faults)) > done:
                done = computed
                self.progress("tasks", done, min(count, len(chosen)))
        self.unseen.append(f"{len(chosen) - done} of {len(chosen)} merged tasks, and all merges: --all computes them")
        return self._build_task_result()

    def replay_rounds(self) -> tuple[ClauseResult, ClauseResult]:
        """Computes every merged task again and merges the rounds; returns the results of rules 8 and 9.

        It ends at the first round that differs or cannot be computed: the next starts from its parameters.
        """
        closed, merged, faults, unseen = self.record.closed, 0, list[ClauseFinding](), list[str]()
        model = self._load_model()
        for one in closed:
            if one.number <= model.done:
                merged += 1
                continue
            reached = self._merge_round(model, one)
            if reached is None:
                unseen.append(f"rounds {one.number} to {closed[-1].number}, which start from what was not computed")
                break
            merged += 1
            self.progress("rounds", merged, len(closed))
            if reached != one.updated:
                detail = f"merged again it gives {reached}, and {one.updated} was published"
                faults.append(ClauseFinding(Clause.UPDATES, f"round {one.number}", detail))
                if one is not closed[-1]:
                    unseen.append(f"the rounds after {one.number}, which start from what it published")
                break
            model.store(self.folder, self._list_done(one.number))
        return self._build_task_result(), ClauseResult(Clause.UPDATES, merged, "rounds", tuple(faults), tuple(unseen))

    def compute_round(self, number: int) -> list[Bytes] | None:
        """Returns the round's merged answers, each with its accepted root; None where one differs or is not computed.

        Where the parameters that its tasks start from are not served any more, the rounds before are merged again.
        """
        answers = self._compute_answers(number)
        if answers is None and not self.faults:
            self.unseen.clear()
            model = self._load_model(anew=True)
            before = [one for one in self.record.closed if one.number < number]
            for done, one in enumerate(before, 1):
                if self._merge_round(model, one) is None:
                    return None
                self.progress("rounds", done, len(before))
            self.fetcher.made(model.digest, lambda: bytes(model.parameters))
            answers = self._compute_answers(number)
        return answers

    def _compute_answers(self, number: int) -> list[Bytes] | None:
        answers = list[Bytes]()
        for task in self.record.find_merged_tasks(number):
            if (answer := self._compute_task(task)) is None:
                return None
            answers.append(answer)
        return answers

    def _build_task_result(self) -> ClauseResult:
        count = len(self.equal) + len(self.faults)
        unseen = tuple(dict.fromkeys(self.unseen))
        return ClauseResult(Clause.GRADIENTS, count, "tasks", tuple(self.faults), unseen)

    def _compute_task(self, task: PublishedTask) -> Bytes | None:
        """Returns the answer if it has the accepted root; None, with a finding or a reason, if not or not computed.

        An answer that differs is computed once more in a new child, before it counts as a fault of the accepted one.
        """
        evidence = self.record.evidence.get(task.id)
        classes = {b.determinism_class for b in evidence.committed if b.root == task.root} if evidence else set()
        own = self.runner.determinism_class()
        if evidence is None or classes.isdisjoint(list_checked_classes(own)):
            other = ", ".join(sorted(filter(None, classes))) or "one that is not shown"
            self.unseen.append(f"tasks of class {other}: this machine is {own}")
            return None
        try:
            answer = self._run(task)
            if blob_digest(answer) != task.root:
                self.runner.close()
                answer = self._run(task)
        except (DownloadRefused, DownloadFailed, PartitionUnfit, Refused, RunnerFailed) as error:
            start = digest_of(self.record.get_offer(task).parameters)
            failed = isinstance(error, DownloadRefused | DownloadFailed)
            gone = failed and self.fetcher.held(start, sys.maxsize) is None
            self.unseen.append(NOT_SERVED if gone else f"tasks that could not be computed here: {error}")
            return None
        if blob_digest(answer) != task.root:
            detail = f"computed again it has {blob_digest(answer)}, and {task.root} was accepted"
            self.faults.append(ClauseFinding(Clause.GRADIENTS, f"task {task.id} of round {task.round}", detail))
            return None
        self.equal.add(task.id)
        return answer

    def _run(self, task: PublishedTask) -> Bytes:
        return self.executor.work(self.record.publication, self.record.get_offer(task))[0]

    def _merge_round(self, model: "ReplayedModel", one: PublishedRound) -> Digest | None:
        """Moves the model past the round; returns the digest of its parameters, None where a task was not computed."""
        self.fetcher.made(model.digest, lambda: bytes(model.parameters))
        answers = list[MergedAnswer]()
        for task in self.record.find_merged_tasks(one.number):
            answer = self._compute_task(task)
            if answer is None:
                return None
            answers.append(MergedAnswer(answer, self.record.get_offer(task).seed))
        try:
            return model.merge(answers, one.number)
        except PayloadRefused as error:
            self.unseen.append(f"the merge of round {one.number}: {error}")
            return None

    def _list_done(self, number: int) -> MergedRecord:
        """Returns the job, and the recorded roots and results of its rounds up to this one."""
        rounds = [one for one in self.record.closed if one.number <= number]
        tasks = (task for one in rounds for task in self.record.find_merged_tasks(one.number))
        return {
            "job": _name_job(self.record),
            "rounds": [str(one.updated) for one in rounds],
            "tasks": {task.id: str(task.root) for task in tasks},
        }

    def _load_model(self, anew: bool = False) -> "ReplayedModel":
        publication = self.record.publication
        info = DocumentInfo.of(self.runner.load(bytes(self.fetcher.blob(publication.document))))
        first = bytearray(self.fetcher.blob(publication.parameters))
        model = ReplayedModel.build(publication.spec, info, layout_of(publication, info), first)
        if (start := publication.spec.continue_from) is not None and start.optimizer_state is not None:
            model.memory = dict(unpack_tensors(bytearray(self.fetcher.blob(start.optimizer_state))))
        if not anew:
            self.equal |= set(model.resume(self.folder, self._list_done))
        return model


@dataclass
class ReplayedModel:
    """A job's model and optimizer memory after round `done`, -1 before the first."""

    spec: JobSpec
    recipe: Recipe
    counters: tuple[str, ...]
    parameters: bytearray
    memory: dict[str, np.ndarray]
    done: int = -1

    @classmethod
    def build(cls, spec: JobSpec, info: DocumentInfo, layout: Layout, parameters: bytearray) -> "ReplayedModel":
        """`parameters`: the bytes of the publication's file."""
        chosen = spec.aggregator
        rule, settings = configure_aggregator(chosen.name, chosen.settings, spec.tasks_needed, spec.sizes.most)
        recipe = Recipe(layout, load_codec(spec.uplink.codec), rule, settings, spec.norm_bound, spec.sizes.most)
        memory = build_model_state(layout, unpack_tensors(parameters), move_of(spec)).memory
        return cls(spec, recipe, info.document.counters, parameters, dict(memory))

    @property
    def digest(self) -> Digest:
        return blob_digest(self.parameters)

    def merge(self, answers: Sequence[MergedAnswer], number: int) -> Digest:
        """Moves the model past a round as its requester does (round_merge, round_update); returns the new digest."""
        layout, move, before = self.recipe.layout, move_of(self.spec, number), self.digest
        after, draft = bytearray(self.parameters), None
        if move.downlink is not None:
            room = memoryview(bytearray(update_bytes(layout, move.downlink)))
            draft = UpdateDraft(move.downlink, room, hash_of(before))
        lr = self.spec.rate_in(number)
        old, new = view_tensors(memoryview(self.parameters)), view_tensors(memoryview(after))
        shards = merged_shards(self.recipe, answers)
        advance_model(layout, old, new, self.memory, shards, move, lr, self.counters, draft=draft)
        self.parameters, self.done = after, number
        return self.digest

    def store(self, folder: Path, record: MergedRecord) -> None:
        """Stores the model and the record so far, so that another process can resume from there."""
        memory = pack_tensors(self.memory)
        durable.write_file_atomically(folder / MEMORY, memory, synced=False)
        durable.write_file_atomically(folder / PARAMETERS, self.parameters, synced=False)
        state = {"done": self.done, "record": record, "digests": [self.digest, blob_digest(memory)]}
        durable.write_file_atomically(folder / STATE, json.dumps(state).encode(), synced=False)

    def resume(self, folder: Path, list_done: Callable[[int], MergedRecord]) -> Sequence[str]:
        """Resumes from the stored model where the record is unchanged so far; returns the tasks that were equal.

        Returns none, and begins anew, where nothing whole was stored or the job or its record differs now.
        """
        try:
            state = json.loads((folder / STATE).read_bytes())
            parameters, memory = (folder / PARAMETERS).read_bytes(), (folder / MEMORY).read_bytes()
        except (FileNotFoundError, ValueError):
            return ()
        whole = state["digests"] == [blob_digest(parameters), blob_digest(memory)]
        if not whole or state["record"] != list_done(state["done"]):
            return ()
        self.parameters, self.done = bytearray(parameters), state["done"]
        self.memory = unpack_tensors(bytearray(memory))
        return tuple(state["record"]["tasks"])
