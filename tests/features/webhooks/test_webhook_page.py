"""The lines of docs/howto/automate.md for receivers accept the service's webhooks, and nothing else."""

import re
import runpy
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gradmarket.market.features.webhooks import sign_webhook, write_secret
from tests.source_tree import ROOT

KEY = b"twenty-four random bytes"
BODY = b'{"type": "job.finished"}'


@pytest.fixture
def verify(tmp_path: Path) -> Callable[..., bool]:
    page = (ROOT / "docs" / "howto" / "automate.md").read_text()
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", page, re.S) if "def verify" in one)
    (tmp_path / "receiver.py").write_text(block)
    found: Callable[..., bool] = runpy.run_path(str(tmp_path / "receiver.py"))["verify"]
    return found


def test_the_page_s_code_accepts_true_signatures_and_refuses_false_ones(verify: Callable[..., bool]) -> None:
    now = int(time.time())
    signed = sign_webhook(KEY, "msg_1", now, BODY)
    assert verify(write_secret(KEY), signed, BODY)
    assert not verify(write_secret(b"another"), signed, BODY)
    assert not verify(write_secret(KEY), signed, BODY + b" ")
    assert not verify(write_secret(KEY), signed | {"webhook-id": "msg_2"}, BODY)
    assert not verify(write_secret(KEY), sign_webhook(KEY, "msg_1", now - 600, BODY), BODY), "an old one, sent again"
