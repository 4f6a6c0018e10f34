"""The best precision for the cards of the workers online, and the training speeds of the measured ones.

A card's class names its architecture (`cuda/sm_90/…`); other classes name no card. Speeds are of GPT-2 small, 8
rows of 1,024 tokens, on an H100: the document alone, forward and backward, without work outside it.
"""

from collections.abc import Mapping
from typing import Final

from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Amount
from graphdoc.document.graph import Precision

MEASURED: Final[Mapping[str, Mapping[Precision, float]]] = {"sm_90": {"fp32": 37e12, "tf32": 81e12, "bf16": 117e12}}
"""Operations a second by architecture and precision."""
MOST_WITH_CARDS: Final = 0.5
"""Beyond this share of workers with cards a job's precision is one of theirs."""


def count_cards(classes: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of workers with a card, by architecture; `classes`: the number of workers by class."""
    found: dict[str, int] = {}
    for name, count in classes.items():
        # a card's architecture, such as sm_90; empty for a processor
        kind, _, rest = name.partition("/")
        if architecture := (rest.partition("/")[0] if kind == "cuda" else ""):
            found[architecture] = found.get(architecture, 0) + count
    return found


def propose_precision(classes: Mapping[str, int]) -> Precision:
    """Returns bf16 where most workers have cards, which compute it at three times the speed of fp32; else fp32.

    A processor's kernels for it are slower than those for fp32.
    """
    return "bf16" if sum(count_cards(classes).values()) > MOST_WITH_CARDS * sum(classes.values()) else "fp32"


def describe_cards(
    classes: Mapping[str, int], precision: Precision, operations: int, tokens: int, price: Amount, token: TokenUnit
) -> list[str]:
    """Returns lines on the cards present, the speeds of the measured ones, and the cost of a token.

    A task has `operations` and `tokens`, 0 where its rows are none, and pays `price`. Empty where no worker has a card.
    """
    cards = count_cards(classes)
    if not cards:
        return []
    named = ", ".join(f"{count} {name}" for name, count in sorted(cards.items()))
    lines = [f"{sum(cards.values())} of {sum(classes.values())} workers have cards: {named}"]
    for name in sorted(cards.keys() & MEASURED.keys()):
        seconds = operations / MEASURED[name][precision]
        speed = f"{tokens / seconds:,.0f} tokens/s" if tokens else f"{seconds:.3g} s a task"
        lines.append(f"{name} in {precision}: about {speed}, at an H100's {MEASURED[name][precision] / 1e12:g} TFLOP/s")
    if tokens:
        lines.append(f"{token.about(Amount(price * 10**6 // tokens))} a million tokens and replica")
    other = propose_precision(classes)
    if other != precision:
        lines.append(f'"precision": "{other}" suits most of these workers')
    return lines
