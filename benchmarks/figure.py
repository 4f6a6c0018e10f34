"""One measured figure."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

SMALLER: Final = "<="
LARGER: Final = ">="


@dataclass(frozen=True)
class Figure:
    """`peer` is what it is held against, `ratio` value over the peer's; `target` as `<= 2` or `>= 0.6`, in `unit`.

    `measured` is the day, as 2026-11-23.
    """

    name: str
    value: float
    unit: str
    peer: str = ""
    ratio: float | None = None
    target: str = ""
    note: str = ""
    measured: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())

    @property
    def ok(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if not self.target:
            return None
        sign, limit = self.target.split()
        return self.value <= float(limit) if sign == SMALLER else self.value >= float(limit)

    def line(self) -> dict[str, object]:
        fields = ("name", "value", "unit", "peer", "ratio", "target", "ok", "note", "measured")
        return {name: getattr(self, name) for name in fields}
