"""A requester is warned of the precision that suits workers with cards, and decides alone."""

import warnings
from typing import Any

import pytest

from gradmarket.sdk.model import warn_of_precision

CARD, CPU = "cuda/sm_90/cuda-13.0", "cpu/x86_64-GenuineIntel/avx2/torch-2.13.0/threads-2"


def test_a_majority_of_workers_with_cards_warns_of_their_precision() -> None:
    with pytest.warns(UserWarning, match=r'^2 of 3 workers have cards, on which precision="bf16" trains'):
        warn_of_precision({CARD: 2, CPU: 1}, {"growth": 2})


@pytest.mark.parametrize(
    ("classes", "fields"),
    [
        ({}, {}),
        ({CARD: 1, CPU: 1}, {}),
        ({CARD: 2}, {"precision": "fp32"}),
        ({CARD: 2}, {"arithmetic": "reproducible"}),
        ({CARD: 2}, {"continue_from": "0123456789abcdef"}),
    ],
)
def test_no_precision_warning_without_cards_or_where_the_job_names_one(
    classes: dict[str, int], fields: dict[str, Any]
) -> None:
    with warnings.catch_warnings(action="error"):
        warn_of_precision(classes, fields)
