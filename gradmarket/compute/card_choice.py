"""Chooses the card of a worker or auditor: the named one, else one that no other process of this machine holds."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gradmarket.market.errors import Refused
from graphdoc.runner.driver import Card, Cards

CUDA: Final = "cuda"
LOCKS: Final = Path(tempfile.gettempdir())


@contextmanager
def take_card(found: Cards, device: str, locks: Path | None = None) -> Iterator[Card]:
    """Yields the device's card and reserves it against processes that name none; raises Refused if there is none.

    `cuda:N` is the N-th card in PCI order, reserved or not; `cuda` the first unreserved one, else the one with most
    memory free.
    """
    if not found.cards:
        raise Refused(f"{device}: {found.fault or 'the driver lists no card'}", found.remedy)
    named = device.partition(":")[2]
    if named and int(named) >= len(found.cards):
        raise Refused(f"{device}: this machine has {list_names(found.cards)}", "name one of them with --device")
    wanted = [found.cards[int(named)]] if named else list(found.cards)
    for card in wanted:
        lock = _lock_card(card, locks or LOCKS)
        if lock is not None:
            try:
                yield card
            finally:
                os.close(lock)
            return
    yield max(wanted, key=lambda card: (card.free or 0, -card.number))


def name_slots(card: Card, locks: Path | None = None) -> str:
    """Returns the path of the file by which this machine's processes share the card's memory (runner.card_slots)."""
    return str((locks or LOCKS) / f"gradmarket-{card.uuid}.slots")


def list_names(cards: Sequence[Card]) -> str:
    """Returns the cards in words."""
    names = ", ".join(f"cuda:{card.number} ({card.name})" for card in cards)
    return f"{len(cards)} card{'' if len(cards) == 1 else 's'}: {names}"


def _lock_card(card: Card, locks: Path) -> int | None:
    """Returns a descriptor that holds the card for this process until it is closed; None where another has it.

    Users of one machine share the folder, so another user's file is opened with its mode unchanged.
    """
    path, flags = locks / f"gradmarket-{card.uuid}.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = os.open(path, flags if path.exists() else flags | os.O_CREAT, 0o644)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
