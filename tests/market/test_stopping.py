"""When a job stops early: at a metric, or once it stalls; rules as text; and the mistakes in them."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from gradmarket.market.job_parts import StopRule
from gradmarket.market.rules.stopping import Ending, StopAtPatience, find_stop_reason, read_stop_rule

RULE = TypeAdapter[Any](StopRule)


def stops(rules: list[Any], *values: dict[str, float] | None) -> str:
    ending = Ending(1000, [RULE.validate_python(rule) for rule in rules], None, ())
    return find_stop_reason(ending, len(values) - 1, values, 0)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("auc > 0.9", {"metric": "auc", "at": 0.9}),
        (" loss<=1e-3 ", {"metric": "loss", "at": 1e-3}),
        ("mae < 2", {"metric": "mae", "at": 2.0, "better": "lower"}),
        ("perplexity < 20", {"metric": "perplexity", "at": 20.0}),
        ("loss > 3", {"metric": "loss", "at": 3.0, "better": "higher"}),
        ("auc stalls 5", {"metric": "auc", "patience": 5}),
    ],
)
def test_a_rule_as_text_is_the_one_in_fields(text: str, fields: dict[str, Any]) -> None:
    assert read_stop_rule(text) == fields
    assert RULE.validate_python(text) == RULE.validate_python(fields)


@pytest.mark.parametrize("text", ["auc", "auc = 0.9", "auc > high", "0.9 < auc", "auc stalls", "auc > 1e999", "> 3"])
def test_a_text_that_is_no_rule_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(ValidationError, match=r"write one like 'auc > 0\.9', 'loss < 0\.1' or 'auc stalls 5'"):
        RULE.validate_python(text)


def test_a_metric_stops_the_job_the_way_it_gets_better() -> None:
    assert stops(["auc > 0.9"], {"auc": 0.8}) == ""
    assert stops(["auc > 0.9"], {"auc": 0.95}) == "auc reached 0.95"
    assert stops(["mae < 0.5"], {"mae": 0.6}) == ""
    assert stops(["mae < 0.5"], {"mae": 0.4}) == "mae reached 0.4"
    assert stops(["auc > 0.9"], {"loss": 0.1}) == ""
    assert stops(["auc > 0.9"], {"auc": 0.95}, None) == "", "a round without an evaluation reaches nothing"


def test_patience_counts_evaluations_without_improvement() -> None:
    values = [{"auc": one} for one in (0.5, 0.7, 0.69, 0.7, 0.6)]
    assert stops(["auc stalls 3"], *values[:4]) == ""
    assert stops(["auc stalls 3"], *values) == "auc has not improved on 0.7 in 3 evaluations"
    assert stops(["auc stalls 3"], *values[:3], None, None, *values[3:4]) == "", (
        "rounds without an evaluation do not count"
    )
    assert stops(["auc stalls 3"], *values[:4], {"auc": 0.71}) == "", "a better one begins anew"


def test_a_model_that_diverged_has_stalled() -> None:
    """Its metrics are not finite: it passes no rule, and patience counts it."""
    assert stops(["auc stalls 2", "auc > 0.5"], {"auc": 0.5}, {}) == ""
    assert stops(["auc stalls 2"], {"auc": 0.5}, {}, {}) == "auc has not improved on 0.5 in 2 evaluations"
    assert stops(["auc stalls 2"], {"auc": 0.5}, {}, None) == ""


def test_less_loss_is_better_and_little_less_is_not() -> None:
    falling = [{"loss": one} for one in (1.0, 0.9, 0.89, 0.885)]
    assert stops(["loss stalls 2"], *falling) == ""
    slow = {"metric": "loss", "patience": 2, "least": 0.05}
    assert stops([slow], *falling) == "loss has not improved on 0.9 in 2 evaluations"
    twin = {"metric": "loss", "patience": 2, "better": "higher"}
    assert stops([twin], *falling[:3]) == "loss has not improved on 1 in 2 evaluations"


def test_a_metric_that_is_never_defined_stalls() -> None:
    assert stops(["auc stalls 2"], {"loss": 1.0}, {"loss": 1.0}) == "auc was not defined in 2 evaluations"
    with pytest.raises(ValidationError):
        StopAtPatience(metric="auc", patience=0)
