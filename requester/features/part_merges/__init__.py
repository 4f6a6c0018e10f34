"""Merges of large models that several processes do, part by part, where Celery runs the stages."""

from requester.context import Context
from requester.feature import Feature
from requester.features.part_merges import merge_part_rows, part_merge
from requester.features.part_merges.part_merge import PartMerger
from requester.moves.replay import MergedRound
from requester.store.tables import Job, Round
from requester.store.work import Work


class PartMergesFeature(Feature):
    name = "part_merges"
    stages = (part_merge,)
    merger = PartMerger()
    blob_kinds = {part_merge.PART: merge_part_rows.names_blob}

    def round_closing(self, work: Work, job: Job, row: Round, merged: MergedRound, now: float) -> None:
        part_merge.release_merged_parts(work, job.id, row.number, merged.memory is not None, now)

    def rounds_undone(self, context: Context, work: Work, job: Job, first: int, now: float) -> None:
        part_merge.release_parts(work, job.id, now, first)

    def job_collected(self, work: Work, job: Job, now: float) -> None:
        part_merge.release_parts(work, job.id, now)
