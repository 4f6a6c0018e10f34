"""A card's speed through the confined child, beside torch's autocast.

`of_eager`: the document's speed over autocast's; `host_share_of_task`: the share of a gradient's time, answered in
two_bit, off the card; `local_of_loop`: 20 served inner steps of AdamW over torch's own loop with its fused AdamW.
Without a card a tiny model on the processor shows that each figure is measured.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks.cards.lines import Line
from benchmarks.cards.speed import measure_card
from benchmarks.figure import Figure
from benchmarks.size import sized
from graphdoc.runner.cards import list_cards

PREFIX = "cuda."
ALLOWED_S: Final = 480.0
TARGETS: Final[Mapping[str, str]] = {
    "cuda.of_eager.gpt2_bf16": ">= 0.95",
    "cuda.host_share_of_task.gpt2_bf16": "<= 0.35",
    "cuda.local_of_eager.gpt2_bf16": ">= 0.8",
    "cuda.local_of_loop.gpt2_bf16": ">= 0.91",
    "cuda.tokens_per_dollar.gpt2_bf16": ">= 1e8",
}


def measure() -> Iterator[Figure]:
    cards = list_cards()
    if cards.fault and sized(True, False):
        raise RuntimeError(f"no card: {cards.fault}")
    name = "processor" if cards.fault else cards.cards[0].name
    for line in measure_card("cpu" if cards.fault else "cuda", time.monotonic() + ALLOWED_S):
        yield build_figure(line, name)


def build_figure(line: Line, card: str) -> Figure:
    """Returns a card's measurement as a figure that names the card. Raises RuntimeError where it failed."""
    if line.value is None:
        raise RuntimeError(f"{line.name}: {line.note}")
    return Figure(line.name, line.value, line.unit, target=TARGETS.get(line.name, ""), note=f"{card}; {line.note}")
