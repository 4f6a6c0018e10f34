"""Amounts for people; the books and the API have integers in the token's smallest unit."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Token:
    symbol: str
    decimals: int

    @classmethod
    def of(cls, chain: dict[str, Any]) -> "Token":
        """From what `GET /v1/chain` says."""
        return cls(str(chain["symbol"]), int(chain["decimals"]))

    def text(self, amount: int | str) -> str:
        whole, rest = divmod(int(amount), 10**self.decimals)
        fraction = str(rest).rjust(self.decimals, "0").rstrip("0") if rest else ""
        return f"{whole}{'.' + fraction if fraction else ''} {self.symbol}"
