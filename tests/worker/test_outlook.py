"""The owner's view of chain and markets is renewed after a failed look."""

import threading
from dataclasses import dataclass, field

import pytest

from tests.patience import PATIENCE_S
from worker.features.owner_page import elsewhere
from worker.features.owner_page.elsewhere import Elsewhere, Outlook


@dataclass
class Failing(Outlook):
    looked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def look(self) -> Elsewhere:
        self.looked.release()
        raise ZeroDivisionError("of the chain")


def test_a_failing_look_is_reported_and_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "LOOK_S", 0.0)
    outlook = Failing(None, None)  # type: ignore[arg-type]
    with outlook.running():
        for _ in range(3):
            assert outlook.looked.acquire(timeout=PATIENCE_S)
    assert outlook.newest.troubles == ("looking failed: ZeroDivisionError('of the chain')",)
