"""The parameters of a simulation: seconds, prices, and shares of the market."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gradmarket.simulation.strategies import STRATEGIES


class Scenario(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    workers: int = Field(default=10_000, ge=2, le=100_000)
    tasks: int = Field(default=300_000, ge=1, le=10_000_000)
    """Accepted tasks after which the simulation ends."""
    mix: dict[str, float] = Field(default_factory=lambda: {"honest": 1.0})
    """Strategy -> its share of the workers; the rest are honest."""
    policy: str = "adaptive"
    """A replication policy, or `boinc`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the policy."""
    stake: float = Field(default=65.0, ge=0.0)
    benefit: float = Field(default=0.0, ge=0.0)
    """The worth of a wrong gradient to its sender."""
    history: float = Field(default=0.0, ge=0.0)
    """Audits that every initial worker has passed; newcomers have none."""
    window: int = Field(default=100, ge=0, le=10_000)
    """Accepted tasks of an operator that are not final yet."""
    task_s: float = Field(default=30.0, gt=0.0)
    """The median time of a task; the workers' paces are log-normal around it with sigma `spread`."""
    spread: float = Field(default=0.5, ge=0.0, le=2.0)
    latency_s: float = Field(default=0.2, ge=0.0)
    draw_s: float = Field(default=30.0, ge=0.0)
    """Seconds from acceptance to the draw of audits."""
    audit_s: float = Field(default=60.0, ge=0.0)
    """Seconds from that draw to an audit's result."""
    lease_s: float = Field(default=300.0, gt=0.0)
    stay_s: float | None = Field(default=None, gt=0.0)
    """Seconds that a worker stays on average before another of its kind replaces it; forever if None."""
    open_tasks: int | None = Field(default=None, ge=1)
    """Tasks open at once; without a limit every worker that asks gets one."""
    max_strikes: int = Field(default=5, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _known(self) -> "Scenario":
        unknown = self.mix.keys() - STRATEGIES.keys()
        if unknown:
            raise ValueError(f"mix: no strategy {', '.join(sorted(unknown))}: choose one of {', '.join(STRATEGIES)}")
        if any(share < 0 for share in self.mix.values()) or sum(self.mix.values()) > 1 + 1e-9:
            raise ValueError("mix: shares are not negative and together at most 1")
        return self
