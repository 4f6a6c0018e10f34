"""Amounts as people write and read them; accounts and the API use integers in the token's smallest unit."""

from dataclasses import dataclass

from gradmarket.market.errors import Refused
from gradmarket.market.terms import Amount
from gradmarket.market.wire_sign_in import ChainFacts


@dataclass(frozen=True)
class TokenUnit:
    symbol: str
    decimals: int

    @classmethod
    def of(cls, facts: ChainFacts) -> "TokenUnit":
        return cls(facts.symbol, facts.decimals)

    def parse(self, text: str) -> Amount:
        """Parses a whole number of the smallest unit, or an amount like "0.01 GRAD". Raises Refused."""
        number, said, symbol = text.strip().partition(" ")
        whole, _, fraction = number.partition(".")
        digits, places = whole + fraction, self.decimals if said else 0
        plain = digits.isascii() and digits.isdigit()
        if symbol != (self.symbol if said else "") or not plain or len(fraction) > places or number.endswith("."):
            raise Refused(f"{text!r} is no amount: a whole number of the smallest unit, or like '0.01 {self.symbol}'")
        return Amount(int(whole + fraction.ljust(places, "0")))

    def text(self, amount: int | str) -> str:
        """Returns an amount of the smallest unit in tokens, such as "0.01 GRAD"; without trailing zeros."""
        whole, rest = divmod(abs(int(amount)), 10**self.decimals)
        fraction = str(rest).rjust(self.decimals, "0").rstrip("0") if rest else ""
        return f"{'-' if int(amount) < 0 else ''}{whole}{'.' + fraction if fraction else ''} {self.symbol}"
