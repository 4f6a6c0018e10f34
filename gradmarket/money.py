"""Formats and parses amounts; the accounts and the API use integers in the token's smallest unit."""

from dataclasses import dataclass
from typing import Any

from gradmarket.market.errors import Refused


@dataclass(frozen=True)
class TokenUnit:
    symbol: str
    decimals: int

    @classmethod
    def of(cls, chain: dict[str, Any]) -> "TokenUnit":
        """Returns the unit from the response of `GET /v1/chain`."""
        return cls(str(chain["symbol"]), int(chain["decimals"]))

    def parse(self, text: str) -> int:
        """Parses an amount like "0.01 GRAD" to the smallest unit. Raises Refused."""
        number, _, symbol = text.partition(" ")
        whole, _, fraction = number.partition(".")
        digits = whole + fraction
        plain = digits.isascii() and digits.isdigit()
        if symbol != self.symbol or not plain or len(fraction) > self.decimals:
            raise Refused(f"{text!r} is no amount: a whole number of the smallest unit, or like '0.01 {self.symbol}'")
        return int(whole + fraction.ljust(self.decimals, "0"))

    def text(self, amount: int | str) -> str:
        whole, rest = divmod(int(amount), 10**self.decimals)
        fraction = str(rest).rjust(self.decimals, "0").rstrip("0") if rest else ""
        return f"{whole}{'.' + fraction if fraction else ''} {self.symbol}"
