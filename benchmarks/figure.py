"""One measured figure, and a benchmark that failed."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

SMALLER: Final = "<="


def today() -> str:
    """Returns the day, as 2026-11-23."""
    return datetime.now(UTC).date().isoformat()


@dataclass(frozen=True)
class Figure:
    """`peer` names the thing compared, `ratio` is value over the peer's; `target` as `<= 2` or `>= 0.6`, in `unit`.

    `measured` is the day.
    """

    name: str
    value: float
    unit: str
    peer: str = ""
    ratio: float | None = None
    target: str = ""
    note: str = ""
    measured: str = field(default_factory=today)

    @property
    def ok(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if not self.target:
            return None
        sign, limit = self.target.split()
        return self.value <= float(limit) if sign == SMALLER else self.value >= float(limit)

    @property
    def peer_value(self) -> float | None:
        """The denominator of the ratio, in `unit`; None where there is no ratio, or one of 0."""
        return self.value / self.ratio if self.ratio else None

    def line(self) -> dict[str, object]:
        fields = ("name", "value", "unit", "peer", "peer_value", "ratio", "target", "ok", "note", "measured")
        return {name: getattr(self, name) for name in fields}


@dataclass(frozen=True)
class Failure:
    """`name`: the prefix of the benchmark's figures; `reason`: the exception in one line."""

    name: str
    reason: str
    measured: str = field(default_factory=today)

    @property
    def ok(self) -> bool:
        return False

    def line(self) -> dict[str, object]:
        return {"name": self.name, "failed": self.reason, "ok": self.ok, "measured": self.measured}
