"""Which of a job's checkpoints is the best by the metric that it is evaluated by."""

from collections.abc import Iterable, Mapping

from gradmarket.market.rules.metric_names import Better, better_of


def is_better(metric: str, value: float, than: float, better: Better | None = None) -> bool:
    """Returns whether a value is strictly better, by `better` where it is given. Nothing is better by being NaN."""
    return value < than if better_of(metric, better) == "lower" else value > than


def find_best_round(
    metric: str, rounds: Iterable[tuple[int, Mapping[str, float]]], better: Better | None = None
) -> int | None:
    """Returns the round with the best value, the earliest of equal ones; None where none was measured."""
    best: tuple[int, float] | None = None
    for number, metrics in sorted(rounds, key=lambda pair: pair[0]):
        value = metrics.get(metric)
        if value is not None and value == value and (best is None or is_better(metric, value, best[1], better)):
            best = number, value
    return None if best is None else best[0]
