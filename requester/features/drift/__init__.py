"""An alarm on operators whose accepted answers together push the model one way; market.features.drift has the rule."""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from gradmarket.market.views.job_views import DriftView
from requester.feature import Feature
from requester.features.drift import lean_rows
from requester.features.drift.drift_watch import DriftWatch
from requester.store.tables import Job, Round, Task
from requester.store.work import RowReader


class DriftFeature(Feature):
    name = "drift"

    def watch_merge(self, reader: RowReader, job: Job, used: Sequence[Task]) -> DriftWatch:
        return DriftWatch.of_merge(reader, job, used)

    def describe_round(self, row: Round) -> Mapping[str, object]:
        return {"drift": DriftView(**row.drift) if row.drift else None}

    def metrics(self, reader: RowReader, now: float) -> Iterable[Metric]:
        """Yields the number of leaning operators of each job that has not ended, by its newest merge."""
        text = "Operators whose accepted answers push the model one way"
        family = GaugeMetricFamily("gradmarket_leaning_operators", text, labels=["job"])
        for job_id, drift in lean_rows.newest_drifts(reader):
            family.add_metric([job_id], len(drift["leaning"]))
        yield family
