"""A too long answer is scaled down until its decoded form is within the bound, with every codec."""

import numpy as np
import pytest

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import Usable, encode_bounded_payload, inspect_shards
from gradmarket.market.gradient.payload import decode_shards
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from tests.market.gradient_cases import LOSS

LAYOUT = Layout((LOSS, LayoutEntry("weight", (16, 4), "gradient"), LayoutEntry("bias", (3,), "gradient")))
BOUND = 0.5


@pytest.mark.parametrize("codec", ["fp32", "bf16", "int8", "int4", "fp4", "two_bit"])
def test_a_long_answer_is_sent_at_nearly_the_bound(codec: str) -> None:
    """One in twenty was refused: the codec rounded each slightly shorter try to the same multiples as before."""
    packed = load_codec(codec)
    for seed in range(300):
        drawn = np.random.default_rng(seed)
        long = {
            "loss": np.float32(1),
            "weight": 1000 * drawn.standard_normal((16, 4)).astype(np.float32),
            "bias": drawn.standard_normal(3).astype(np.float32),
        }
        task = seed.to_bytes(32, "big")
        payload = encode_bounded_payload(LAYOUT, long, packed, task, (), BOUND)
        found = inspect_shards(LAYOUT, decode_shards(LAYOUT, payload, packed, task), BOUND)
        assert isinstance(found, Usable)
        assert found.norm > 0.8 * BOUND


def test_an_answer_that_is_not_finite_is_refused() -> None:
    holed = {"loss": np.float32(1), "weight": np.full((16, 4), np.nan, np.float32), "bias": np.zeros(3, np.float32)}
    with pytest.raises(Refused, match="lower the job's rate"):
        encode_bounded_payload(LAYOUT, holed, load_codec("int8"), bytes(32), (), BOUND)
