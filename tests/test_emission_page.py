"""docs/performance.md says of publishing what `make bench ONLY=emission` measured last, as it was committed."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "performance.md").read_text()
MEASURED = {line["name"]: line for line in json.loads((ROOT / "benchmarks/results/emission.json").read_text())}
ROW = re.compile(r"^\| (.+?) \| `make bench ONLY=emission` \| (.+?) \|", re.MULTILINE)
ROWS = dict(ROW.findall(PAGE))


def value(name: str) -> float:
    return float(MEASURED[f"emission.{name}"]["value"])


SAID = {
    "GPT-2 small published": f"{value('gpt2.66.cpu_s'):.1f} s of CPU",
    "the process's peak": f"{value('gpt2.66.gib'):.2f} GiB",
    "a loop of 272 places": f"{value('scan.ms_a_node'):.1f} ms; {value('scan.growth'):.2f} times",
    "a cell called at each of 272 places": f"{value('cells.ms_a_node'):.1f} ms; {value('cells.growth'):.2f} times",
    "a GRU of 1,024 places": f"{value('gru.1024.cpu_s'):.1f} s of CPU, {value('gru.1024.gib'):.2f} GiB",
}


@pytest.mark.parametrize("begins", SAID)
def test_the_page_says_what_was_measured(begins: str) -> None:
    (said,) = (figures for what, figures in ROWS.items() if what.startswith(begins))
    assert said == SAID[begins]


def test_the_page_has_every_figure_of_the_file_and_no_other() -> None:
    assert len(ROWS) == len(SAID)
    assert sum(len(re.findall(r"s of CPU|GiB|ms|times", said)) for said in SAID.values()) == len(MEASURED)
