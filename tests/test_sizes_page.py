"""docs/results/sizes.md has the figures of `gradmarket job plan --parameters`."""

import re
from typing import Any, Final

import pytest

from gradmarket.commands.needs import Speed, estimate_large_model, in_bytes, in_words_of_time
from gradmarket.commands.resources import MEASURED, describe_limits
from gradmarket.market.job import JobSpec
from tests.source_tree import ROOT

PAGE: Final = (ROOT / "docs" / "results" / "sizes.md").read_text()
ROWS: Final = {
    name.strip(): [cell.strip() for cell in cells.split("|")]
    for name, cells in re.findall(r"^\| (\d+ \w+) \|(.+)\|$", PAGE, re.MULTILINE)
}
JOB: Final[dict[str, Any]] = {
    "name": "large",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 4},
    "optimizer": {"lr": 0.1},
    "rounds": 1,
    "price": "1",
}


@pytest.mark.parametrize(
    ("name", "parameters"), [("124 million", MEASURED), ("1 billion", 10**9), ("7 billion", 7 * 10**9)]
)
def test_a_row_is_what_the_plan_computes(name: str, parameters: int) -> None:
    plain, small = (
        estimate_large_model(JobSpec.model_validate(JOB | {"uplink": {"codec": codec}}), parameters, Speed(10, 100, 3))
        for codec in ("fp32", "two_bit")
    )
    sent = f"{in_bytes(plain.download)}, {in_bytes(plain.upload)}"
    told = [sent, in_bytes(plain.memory), plain.card, in_words_of_time(plain.task_seconds), in_bytes(small.upload)]
    assert ROWS[name] == told


def test_the_page_s_limits_are_those_of_the_plan() -> None:
    told = describe_limits(JobSpec.model_validate(JOB), 70 * 10**9, 16 * 70 * 10**9)
    for variable in re.findall(r"GRADMARKET_\w+", PAGE):
        assert sum(variable in limit for limit in told) == 1
    amounts = [re.findall(r"[\d.]+ GB", limit)[-1] for limit in told if "GRADMARKET" in limit]
    assert sorted(amounts) == sorted(re.findall(r"[\d.]+ GB", PAGE.partition("What stands")[2]))
