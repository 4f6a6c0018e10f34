"""Draws a task's rows: a pure function of the job's seed and the offer's round and task. No torch."""

from collections.abc import Collection
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np
from blake3 import blake3

from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import MEAN
from gradmarket.market.manifest import Manifest, Partition

_KEY: Final = np.dtype("<u8")


def list_training_partitions(manifest: Manifest, spec: JobSpec) -> tuple[Partition, ...]:
    """Returns the partitions that tasks draw rows from: all but the held-out one; none where holders have the rows."""
    if spec.private:
        return ()
    held_out = spec.evaluation.partition if spec.evaluation else None
    return tuple(partition for partition in manifest.partitions if partition.name != held_out)


def partition_of(manifest: Manifest, spec: JobSpec, place: int) -> Partition:
    """Returns the partition of a place in the job's order (JobSpec.place): places take the training ones in turn."""
    partitions = list_training_partitions(manifest, spec)
    return partitions[place % len(partitions)]


def task_rows(manifest: Manifest, spec: JobSpec, round: int, task: int) -> list[int]:
    """Returns the rows of its partition that a task computes on, the same for every replica and auditor.

    Raises Refused if the partition has fewer rows than a step takes.
    """
    step, seed, place = spec.step, spec.seed.to_bytes(8, "big"), spec.place(round, task)
    partition = partition_of(manifest, spec, place)
    if spec.by_epochs:
        group = place // len(list_training_partitions(manifest, spec))
        return epoch_rows(seed + partition.name.encode(), group, partition.rows, step.rows, step.moves)
    return draw_shuffled_rows(seed, spec.rounds_before + round, task, partition.rows, step.rows, step.moves)


def epoch_rows(seed: bytes, group: int, total: int, count: int, moves: int = 1) -> list[int]:
    """Returns the rows of one of the groups of `moves` times `count` in which the rows of a partition are taken.

    Every epoch shuffles all rows anew, and groups take them one after the other, from one epoch into the next: rows
    left over at an epoch's end are in the next group. Raises Refused if count > total.
    """
    if not 1 <= count <= total:
        raise Refused(f"a step takes {count} rows of a partition that has {total}")
    start, stop = group * moves * count, (group + 1) * moves * count
    first, last = start // total, (stop - 1) // total
    order = list(chain.from_iterable(_shuffle_rows(seed, epoch, total).tolist() for epoch in range(first, last + 1)))
    return order[start - first * total : stop - first * total]


def draw_shuffled_rows(seed: bytes, round: int, task: int, total: int, count: int, moves: int = 1) -> list[int]:
    """Returns `moves` times `count` different rows of `total`, for task number `task` of a round.

    Every round shuffles all rows anew. Task t takes the next moves * count places of that shuffle after those of task t
    - 1, wrapping around at its end: no row is taken twice in a round before all have been taken once. Raises Refused if
    count > total.
    """
    if not 1 <= count <= total:
        raise Refused(f"a step takes {count} rows of a partition that has {total}")
    places = np.arange(task * moves * count, (task + 1) * moves * count) % total
    chosen: list[int] = _shuffle_rows(seed, round, total)[places].tolist()
    return chosen


def other_rows(own: Collection[int], total: int, draws: int, seed: bytes) -> list[list[int]]:
    """Returns `draws` lists of as many rows as `own`: no row twice, and none of `own`.

    Raises Refused if there are too few rows.
    """
    if (draws + 1) * len(own) > total:
        raise Refused(f"{draws} draws of {len(own)} rows beside the own ones, of a partition that has {total}")
    taken = set(own)
    order = [row for row in _shuffle_rows(seed, 0, total).tolist() if row not in taken]
    return [order[draw * len(own) : (draw + 1) * len(own)] for draw in range(draws)]


def _shuffle_rows(seed: bytes, round: int, total: int) -> np.ndarray:
    """Returns int64[total], the rows sorted by a hash key each; redraws all keys on a tie, so no order is favoured."""
    attempt = 0
    while True:
        message = b"rows" + b"".join(number.to_bytes(8, "big") for number in (round, total, attempt)) + seed
        keys = np.frombuffer(blake3(message).digest(_KEY.itemsize * total), dtype=_KEY)
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        if not (ordered[1:] == ordered[:-1]).any():
            return order
        attempt += 1


def find_row_weights_fault(aggregator: str, judged: str) -> str:
    """Returns why answers of weighted rows cannot be merged in a job, the field first; empty where they can."""
    why = "the model's rows have weights (targets that are ignored, or weights of classes)"
    if aggregator != MEAN:
        return f"aggregator: {why}, and {aggregator} gives each answer one say: take {MEAN}"
    if judged != "exact":
        return f"verifier: {why}, and {judged} compares no weights: leave out verifier"
    return ""


def layout_in(spec: JobSpec, whole: Layout) -> Layout:
    """Returns the layout of a job's payloads from its document's.

    Nobody could check the weight that a holder claims of its own rows, so in a private job no answer brings one.
    """
    return replace(whole, leaves=spec.step.leaves, weighed=whole.weighed and spec.private is None)


def check_weighed(spec: JobSpec, whole: Layout) -> None:
    """Raises JobRefused where the document's rows have weights and the job cannot merge by them."""
    if not layout_in(spec, whole).weighed:
        return
    field, _, why = find_row_weights_fault(spec.aggregator.name, spec.verifier.name).partition(": ")
    if field:
        raise JobRefused(field, why)
