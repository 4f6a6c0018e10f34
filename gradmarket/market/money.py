"""Amounts as people write and read them; accounts and the API use integers in the token's smallest unit."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.printable import replace_controls
from gradmarket.market.terms import Amount

UNITS: Final = "units"
"""The written name of the token's smallest unit."""
WRITTEN: Final = r"([0-9]{1,78})(?:\.([0-9]{1,78}))?(?:e([0-9]{1,2}))?(?: (\S{1,40}))?"
"""An amount: whole part, fraction, power of ten, unit."""
PRICED: Final = ("price", "budget", "stake", "vesting", "stop")
"""The fields of a job that are amounts, or have amounts in them."""

LONGEST_SYMBOL: Final = 16
MOST_DECIMALS: Final = 36
DEEPEST: Final = 8
"""Levels of a field that are searched for amounts: deeper ones are refused like any other malformed value."""


class TokenFacts(Protocol):
    """A chain's description of its token (wire.sign_in.ChainFacts)."""

    @property
    def symbol(self) -> str: ...

    @property
    def decimals(self) -> int: ...


@dataclass(frozen=True)
class TokenUnit:
    symbol: str
    decimals: int

    @classmethod
    def of(cls, facts: TokenFacts) -> "TokenUnit":
        """Returns the token as a market names it, with a question mark for each character that would be control or
        markup.

        Raises Refused for decimals that no token has.
        """
        if not 0 <= facts.decimals <= MOST_DECIMALS:
            raise Refused(f"the market's token has {facts.decimals:.3g} decimals", "name another market")
        return cls(re.sub(r"[][\\]", "?", replace_controls(facts.symbol[:LONGEST_SYMBOL])), facts.decimals)

    def parse(self, text: object) -> Amount:
        """Parses "0.01 GRAD", "1e18 units", or a whole number of the smallest unit. Raises Refused."""
        found = re.fullmatch(WRITTEN, text.strip()) if isinstance(text, str) else None
        whole, fraction, power, unit = found.groups("") if found else ("", "", "", "")
        places = int(power or 0) + (self.decimals if unit == self.symbol else 0)
        if not found or unit not in (self.symbol, UNITS, "") or len(fraction) > places:
            raise Refused(f"{text!r} is no amount: write it like '0.01 {self.symbol}', '1e18 units' or '1000'")
        return Amount(int(whole + fraction.ljust(places, "0")))

    def text(self, amount: int | str) -> str:
        """Returns an amount of the smallest unit in tokens, such as "0.01 GRAD"; without trailing zeros."""
        whole, rest = divmod(abs(int(amount)), 10**self.decimals)
        fraction = str(rest).rjust(self.decimals, "0").rstrip("0") if rest else ""
        return f"{'-' if int(amount) < 0 else ''}{whole}{'.' + fraction if fraction else ''} {self.symbol}"

    def about(self, amount: int) -> str:
        """Returns a measured amount in tokens, cut after four places, or after two figures where it is small."""
        shown = max(4, self.decimals - len(str(abs(amount))) + 2) if amount else 0
        places = 10 ** max(0, self.decimals - shown)
        return self.text(amount // places * places)


LOCAL_TOKEN: Final = TokenUnit("GRAD", 18)
"""The token of a local chain, used where no service answers."""


def in_smallest(job: Mapping[str, Any], token: Callable[[], TokenUnit]) -> dict[str, Any]:
    """Returns a job with the amounts that people wrote, such as "0.01 GRAD", in the token's smallest unit, as JSON has
    them. `token` is called only where there are any. Raises JobRefused for one in another token."""
    return {name: _convert_to_smallest(value, token, name) if name in PRICED else value for name, value in job.items()}


def _convert_to_smallest(value: Any, token: Callable[[], TokenUnit], field: str) -> Any:
    deeper = field.count(".") < DEEPEST
    if deeper and isinstance(value, Mapping):
        return {name: _convert_to_smallest(each, token, f"{field}.{name}") for name, each in value.items()}
    if deeper and isinstance(value, list | tuple):
        return [_convert_to_smallest(each, token, f"{field}.{place}") for place, each in enumerate(value)]
    if not isinstance(value, str) or value.isdigit() or not re.fullmatch(WRITTEN, value):
        return value
    unit = token()
    try:
        return str(unit.parse(value))
    except Refused as error:
        raise JobRefused(field, error.detail) from error
