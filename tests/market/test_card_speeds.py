"""Cards of a market, by hand: the best precision for them, and a token's time and cost."""

import pytest

from gradmarket.card_advice import MEASURED, count_cards, describe_cards, propose_precision
from gradmarket.market.money import LOCAL_TOKEN
from gradmarket.market.terms import Amount

H100 = "cuda/sm_90/cuda-13.0/cublas-13.1.0/cudnn-91900/torch-2.11.0+cu130/tf32-off/workspace-4096x8/kernels-12"
OTHER_H100, ADA, CPU = H100.replace("-12", "-34"), "cuda/sm_89/x", "cpu/x86_64-GenuineIntel/avx2/torch-2.13.0/threads-2"


def test_cards_are_counted_by_architecture() -> None:
    assert count_cards({H100: 2, OTHER_H100: 1, ADA: 4, CPU: 9, "": 3}) == {"sm_90": 3, "sm_89": 4}


@pytest.mark.parametrize(
    ("classes", "precision"),
    [({}, "fp32"), ({CPU: 2}, "fp32"), ({CPU: 1, H100: 1}, "fp32"), ({CPU: 1, ADA: 2}, "bf16")],
)
def test_bf16_is_proposed_where_most_workers_have_cards(classes: dict[str, int], precision: str) -> None:
    assert propose_precision(classes) == precision


def test_only_measured_cards_have_a_speed_and_a_price() -> None:
    operations, tokens = int(MEASURED["sm_90"]["bf16"]), 100_000
    told = describe_cards({H100: 1, ADA: 1, CPU: 1}, "bf16", operations, tokens, Amount(10**18), LOCAL_TOKEN)
    assert told == [
        "2 of 3 workers have cards: 1 sm_89, 1 sm_90",
        "sm_90 in bf16: about 100,000 tokens/s, at an H100's 117 TFLOP/s",
        "10 GRAD a million tokens and replica",
    ]
    rows = describe_cards({H100: 2, CPU: 1}, "fp32", 74 * 10**12, 0, Amount(1), LOCAL_TOKEN)
    assert rows[1:] == [
        "sm_90 in fp32: about 2 s a task, at an H100's 37 TFLOP/s",
        '"precision": "bf16" suits most of these workers',
    ]
    assert describe_cards({CPU: 5}, "fp32", 1, 1, Amount(1), LOCAL_TOKEN) == []
