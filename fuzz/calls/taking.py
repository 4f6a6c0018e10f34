"""The memory that a call takes, forward and backward, against its bound: for calls with large arrays."""

import ctypes
import math
import os
from collections.abc import Sequence
from typing import Any, Final

from fuzz.calls.arrays import Arrays
from fuzz.calls.damage import tensors_of as tensors_in
from fuzz.calls.making import CPU, META, Finding, called, given_of, gradients, tensors_of, without_elements
from gradmarket.market.errors import DocumentRefused
from graphdoc.cost import FRAGMENTS
from graphdoc.document.calls import OPERATORS, OperatorCall
from graphdoc.document.formulas import STAND_INS
from graphdoc.document.interpret import STEP_ERRORS
from graphdoc.document.meter import Limits, Meter

LIMITS: Final = Limits(operations=5 * 10**8, peak_bytes=2**28)
"""Of calls that are made here at all."""
ELEMENTS: Final = 2**23
SPARE: Final = 3 * 2**20
"""Bytes that a call may take beyond its bound: a task's own RUNTIME is there for them."""
_STATUS: Final = os.open("/proc/self/status", os.O_RDONLY)
_RESET: Final = os.open("/proc/self/clear_refs", os.O_WRONLY)
_TRIM: Final = ctypes.CDLL(None).malloc_trim


def taken(key: str, written: list[Any]) -> None:
    """Raises Finding where the call takes more memory than its bound, DocumentRefused where it is too large."""
    operator = OPERATORS[key]
    given = given_of(operator, written)
    if sum(math.prod(made["shape"]) for made in tensors_in(given)) > ELEMENTS:
        raise DocumentRefused("too large to be made here")
    declared = _count_declared_bytes(operator, given)
    arguments = Arrays(0).made(list(given))
    try:
        _pass(operator, arguments)
        found = _peak(operator, arguments)
    except STEP_ERRORS:
        raise DocumentRefused("refused when it ran") from None
    held = sum(tensor.nbytes for tensor in tensors_of(arguments))
    if held + found > (1 + FRAGMENTS) * (held + declared) + SPARE:
        raise Finding(
            f"it took {found / 2**20:.1f} MiB beside {held / 2**20:.1f} of its arguments, {declared / 2**20:.1f} told"
        )


def _count_declared_bytes(operator: OperatorCall, given: Sequence[Any]) -> int:
    """Bytes beside the arguments."""
    arguments = without_elements(Arrays(0).made(list(given)))
    meter = Meter(LIMITS, 1)
    stand_in = STAND_INS.get(operator.key)
    try:
        with meter:
            for tensor in tensors_of(arguments):
                meter.hold(tensor)
            held = meter.peak
            if operator.condition is not None:
                operator.condition(arguments)
            found = None if stand_in is None else stand_in(arguments)
            results = called(operator, arguments, META) if found is None else _listed(found)
            meter.count(operator, arguments, results, 1)
            gradients(results, arguments)
    except STEP_ERRORS as error:
        raise DocumentRefused(str(error)[:200]) from None
    return meter.peak - held


def _listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, list | tuple) else [found]


def _pass(operator: OperatorCall, arguments: Sequence[Any]) -> None:
    results = called(operator, arguments, CPU)
    gradients(results, arguments)


def _peak(operator: OperatorCall, arguments: Sequence[Any]) -> int:
    """Returns the bytes by which resident memory grows during a pass, in a process that gives freed memory back."""
    _TRIM(0)
    os.pwrite(_RESET, b"5", 0)
    before = _kib(b"VmRSS:")
    _pass(operator, arguments)
    return 1024 * (_kib(b"VmHWM:") - before)


def _kib(name: bytes) -> int:
    status = os.pread(_STATUS, 4096, 0)
    return int(status[status.index(name) + len(name) :].split(maxsplit=1)[0])
