"""The demo's job and its workers."""

from typing import Any, Final

GOAL: Final = 0.95
"""The least accuracy on held-out rows for a successful demo."""
PRICE: Final = 10**16
"""A hundredth of a token per gradient."""
HONEST: Final = "honest"
CAST: Final = (HONEST, "sign_flip", HONEST, "noise", HONEST)
"""How each worker behaves; a cheat's name is a function of the module `cheat`."""

JOB: Final[dict[str, Any]] = {
    "name": "handwritten digits",
    "model": {"architecture": "mlp", "arguments": {"hidden": [512]}},
    "data": {"ready": "digits"},
    "evaluation": {"partition": "test", "metric": "accuracy"},
    "step": {"kind": "gradient", "rows": 350},
    "optimizer": {"name": "adamw", "lr": 0.02},
    "rounds": 40,
    "tasks_per_round": 2,
    "replication": {"name": "fixed", "replicas": 3, "max_replicas": 5},
    "verifier": {"name": "exact"},
    "separation": ["payout"],
    "seed": 4,
    "price": str(PRICE),
    "deadlines": {"lease_s": 30, "wave_s": 6, "upload_s": 10},
    "stop": [{"metric": "accuracy", "at": 0.96}],
}
