"""Functions of one number to 100 digits, in decimal integers: they decide where float64 cannot separate neighbours."""

from collections.abc import Callable, Mapping
from decimal import Context, Decimal, localcontext
from functools import cache
from typing import Final

_DIGITS: Final = 200
"""The working digits: the largest cancellations, of erfc(10) and of sin(1e38), leave more than 100."""
_ENOUGH: Final = Decimal(10) ** -180


def evaluate_decimal(function: str, *arguments: float) -> Decimal:
    """Returns the function's value at these finite arguments, which are in its domain."""
    with localcontext(Context(prec=_DIGITS)):
        return _FUNCTIONS[function](*map(Decimal, arguments))


def _sum_series(first: Decimal, ratio: Callable[[int], Decimal]) -> Decimal:
    """Returns first * (1 + ratio(1) * (1 + ratio(2) * ...)) until its terms no longer count."""
    total = term = first
    number = 1
    while abs(term) > _ENOUGH or number < 4:
        term *= ratio(number)
        total += term
        number += 1
    return total


@cache
def _pi() -> Decimal:
    """Returns pi by Machin's formula."""

    def arctangent(whole: int) -> Decimal:
        square, power, total, number = whole * whole, Decimal(1) / whole, Decimal(0), 0
        while power > Decimal(10) ** -(_DIGITS + 5):
            total += (-1) ** number * power / (2 * number + 1)
            power, number = power / square, number + 1
        return total

    return 16 * arctangent(5) - 4 * arctangent(239)


def _sine(x: Decimal) -> Decimal:
    turn = 2 * _pi()
    angle = x - turn * (x / turn).to_integral_value()
    return _sum_series(angle, lambda n: -angle * angle / (2 * n * (2 * n + 1)))


def _error_function(x: Decimal) -> Decimal:
    """Sums Abramowitz and Stegun 7.1.6, whose terms have one sign."""
    series = _sum_series(x, lambda n: 2 * x * x / (2 * n + 1)) if x else x
    return 2 / _pi().sqrt() * (-x * x).exp() * series


def _tangent(x: Decimal) -> Decimal:
    doubled = (2 * x).exp()
    return (doubled - 1) / (doubled + 1)


_FUNCTIONS: Final[Mapping[str, Callable[..., Decimal]]] = {
    "exp": lambda x: x.exp(),
    "exp2": lambda x: (x * Decimal(2).ln()).exp(),
    "expm1": lambda x: x.exp() - 1,
    "log": lambda x: x.ln(),
    "log2": lambda x: x.ln() / Decimal(2).ln(),
    "log10": lambda x: x.log10(),
    "log1p": lambda x: (1 + x).ln(),
    "tanh": _tangent,
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "erf": _error_function,
    "erfc": lambda x: 1 - _error_function(x),
    "sin": _sine,
    "cos": lambda x: _sine(x + _pi() / 2),
    "sqrt": lambda x: x.sqrt(),
    "pow": lambda x, y: x**y,
}
