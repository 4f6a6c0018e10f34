"""This machine's resources for a step: a card, or the cores and the memory of `runner.machine_limits`."""

import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gradmarket.compute.card_choice import CUDA, name_slots, take_card
from gradmarket.market.errors import Refused, RunnerFailed
from gradmarket.market.rules.assignment import find_thread_count
from gradmarket.runner import Runner, RunnerSettings
from gradmarket.runner.machine_limits import LEAST_MEMORY, ROOT, choose_memory, count_cores
from graphdoc.runner.cards import list_cards
from graphdoc.runner.driver import Card, Cards
from graphdoc.runner.settings import DEVICE, VISIBLE

AUTO: Final = "auto"
ALL: Final = "all"
CPU: Final = "cpu"
MOST_THREADS: Final = 16
_NO_CARD: Final = "`gradmarket doctor` starts it step by step; --device cpu computes without"
CARDS: Final = ("dev/nvidiactl", "dev/dxg")
"""Files that a machine with a card has: of NVIDIA's driver, and under WSL."""
CARD_SHARE: Final = 0.9
"""Share of a card's free memory that a step may take; other programs and the driver's own growth have the rest."""


def device_name(text: str) -> str:
    """Returns the text unchanged if it names a device. Raises ValueError."""
    if text != AUTO and not re.fullmatch(DEVICE, text):
        raise ValueError(f"{text[:80]!r} is not a device: name auto, cpu, cuda or a card such as cuda:1")
    return text


def list_device_names(text: str) -> str:
    """Returns the text unchanged if it names a device, several cards, or `all` of them. Raises ValueError."""
    if text == ALL:
        return text
    names = text.split(",")
    for name in names:
        device_name(name)
    if len(names) > 1 and (len(set(names)) < len(names) or not all(re.fullmatch(r"cuda:\d+", name) for name in names)):
        raise ValueError(f"{text[:80]!r}: list several cards by number, each once, like cuda:0,cuda:1")
    return text


def threads_for(cores: float) -> int:
    """Returns the greatest power of two that is at most `cores`, from 1 to MOST_THREADS.

    Threads are part of the determinism class, and only workers of one class vote together, so few counts are allowed.
    """
    return min(MOST_THREADS, 1 << max(0, int(cores).bit_length() - 1))


def share_of_card(card: Card) -> int:
    """Returns the default limit, in bytes, of a step on this card."""
    return max(LEAST_MEMORY, int(CARD_SHARE * (card.memory if card.free is None else card.free)))


def has_card(root: Path = ROOT) -> bool:
    """Returns whether a driver's node exists and the owner does not hide all cards (an empty CUDA_VISIBLE_DEVICES)."""
    return os.environ.get(VISIBLE) != "" and any((root / file).exists() for file in CARDS)


@dataclass(frozen=True, slots=True)
class Computing:
    """A runner, the cores that are there, its card, and why it is not on a card although this machine has one."""

    runner: Runner
    cores: float
    card: Card | None = None
    why: str = ""

    @property
    def device(self) -> str:
        return self.runner.settings.device

    @property
    def threads(self) -> int:
        return self.runner.settings.threads

    @property
    def memory(self) -> int:
        """Bytes that a step may take."""
        return self.runner.settings.memory_bytes

    @property
    def text(self) -> str:
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        card = f" ({self.card.name}, {self.card.memory / 2**30:.0f} GiB)" if self.card else ""
        return f"Computes on {self.device}{card} with {threads}, of {self.cores:g} cores that it may use."

    @property
    def warning(self) -> str:
        """The warning that the machine has a card which computes nothing; empty otherwise."""
        if not self.why:
            return ""
        return f"WARNING: this machine has a card, and it is NOT used: {self.why}. `gradmarket doctor` shows more."


@contextmanager
def open_runner_on_device(
    settings: RunnerSettings, device: str, threads: int | None, memory: int | None = None
) -> Iterator[Computing]:
    """Yields a runner on this device; where `device` is AUTO, on an unreserved card, else on the CPU.

    Without `threads` the CPU gets the result of `threads_for`, or OMP_NUM_THREADS where that is set, and a card one;
    without `memory` a step may take half of the machine's, on a card most of the free memory. Raises Refused where a
    named card cannot be used.
    """
    settings, why = replace(settings, memory_bytes=memory or choose_memory()), ""
    if device != CPU and (device != AUTO or has_card()):
        with ExitStack() as stack:
            try:
                mine = stack.enter_context(
                    _open_on_card(settings, CUDA if device == AUTO else device, threads or 1, memory, list_cards())
                )
                mine.runner.start()
            except (Refused, RunnerFailed) as error:
                if device != AUTO:
                    raise Refused(error.detail, error.remedy or _NO_CARD) from error
                why = error.detail
            else:
                yield mine
                return
    there = count_cores()
    if not threads:
        asked = os.environ.get("OMP_NUM_THREADS", "")
        threads = min(256, int(asked)) if asked.isdigit() and int(asked) else threads_for(there)
    with Runner(replace(settings, device=CPU, threads=threads)) as runner:
        yield Computing(runner, there, why=why)


@contextmanager
def open_runners(
    settings: RunnerSettings, device: str, threads: int | None, memory: int | None = None
) -> Iterator[tuple[Computing, ...]]:
    """Yields a runner for each of several cards (`cuda:0,cuda:1`, or `all`), else that of open_runner_on_device.

    Raises Refused too where the cards are of more than one class: a worker's votes are of one.
    """
    if device != ALL and "," not in device:
        with open_runner_on_device(settings, device, threads, memory) as one:
            yield (one,)
        return
    found = list_cards()
    names = [f"{CUDA}:{card.number}" for card in found.cards] if device == ALL else device.split(",")
    if not names:
        raise Refused(f"{ALL}: {found.fault or 'the driver lists no card'}", found.remedy or _NO_CARD)
    with ExitStack() as stack:
        opened = [_open_on_card(settings, name, threads or 1, memory, found) for name in names]
        mine = tuple(stack.enter_context(one) for one in opened)
        try:
            with ThreadPoolExecutor(len(mine)) as starting:  # seconds each, mostly torch's import and the driver
                classes = list(starting.map(lambda one: one.runner.determinism_class(), mine))
        except (Refused, RunnerFailed) as error:
            raise Refused(error.detail, error.remedy or _NO_CARD) from error
        for one, name in zip(mine, classes, strict=True):
            if name != classes[0]:
                raise Refused(
                    f"{one.device} is of the class {name}, {mine[0].device} of {classes[0]}: a worker has one class",
                    f"start a worker of its own for {one.device}, with its own --data",
                )
        yield mine


@contextmanager
def _open_on_card(
    settings: RunnerSettings, device: str, threads: int, memory: int | None, found: Cards
) -> Iterator[Computing]:
    """Yields a runner whose child will run on this card. Raises Refused."""
    with take_card(found, device) as card:
        settings = replace(settings, device=f"{CUDA}:{card.number}", threads=threads)
        settings = replace(settings, memory_bytes=memory or share_of_card(card), slots=name_slots(card))
        with Runner(settings) as runner:
            yield Computing(runner, count_cores(), card)


def choose_named_threads(classes: Iterable[str]) -> int | None:
    """Returns the threads that these classes name, if this machine has as many cores: no market can start more."""
    named = {find_thread_count(each) for each in classes} - {None}
    threads = named.pop() if len(named) == 1 else None
    return threads if threads is not None and threads <= (os.cpu_count() or 1) else None
