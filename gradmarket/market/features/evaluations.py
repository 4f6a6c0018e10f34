"""The best of a job's checkpoints by a metric."""

from collections.abc import Iterable, Mapping

from gradmarket.market.rules.metric_names import Better, choose_metric, is_better


def find_best_round(
    metric: str, rounds: Iterable[tuple[int, Mapping[str, float]]], better: Better | None = None
) -> int | None:
    """Returns the round with the best value, the earliest of equal ones; None where none was measured.

    By the loss where no round has the metric; `better` is of the metric.
    """
    measured = sorted(rounds, key=lambda pair: pair[0])
    by = choose_metric(metric, (metrics for _, metrics in measured))
    way = better if by == metric else None
    best: tuple[int, float] | None = None
    for number, metrics in measured:
        value = metrics.get(by)
        if value is not None and value == value and (best is None or is_better(by, value, best[1], way)):
            best = number, value
    return None if best is None else best[0]
