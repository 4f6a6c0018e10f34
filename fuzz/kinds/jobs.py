"""Job specifications, as they come in a request's body: any field of another type, size or name."""

from random import Random
from typing import Any, Final

from pydantic import ValidationError

from fuzz.case import Case
from fuzz.values import changed, dumped, misspelt
from gradmarket.market.job import JobSpec
from graphdoc.encoding import canonical

REFUSED: Final = ValidationError
"""The API answers it as a 422 that names the field."""
_DIGEST: Final = "blake3:" + "ab" * 32
_INNER: Final = {"name": "muon", "lr": 0.1, "clip": 1.0, "schedule": {"name": "linear", "warmup": 2}, "adamw": ["head"]}


def case(chance: Random) -> Case:
    whole = _honest(chance)
    draw = chance.random()
    if draw < 0.1:
        return Case(dumped(whole))
    return Case(dumped(changed(whole, chance)) if draw < 0.8 else misspelt(dumped(whole), chance))


def read(case: Case) -> JobSpec:
    """Any accepted job can be written as canonical JSON and read again, and its cost is a number."""
    found = JobSpec.model_validate_json(case.data)
    assert JobSpec.model_validate_json(canonical(found.model_dump(mode="json"))) == found
    assert found.most_expensive >= 0
    assert found.plan().quorum >= 1
    return found


def _honest(chance: Random) -> dict[str, Any]:
    document = {"document": _DIGEST, "parameters": _DIGEST}
    ready = {"architecture": "mlp", "arguments": {"hidden": [32]}}
    local = {"kind": "local", "rows": 64, "steps": 5, "rewarm": 2, "optimizer": _INNER}
    return {
        "name": "digits",
        "model": chance.choice((ready, document)),
        "data": chance.choice(({"ready": "digits"}, {"manifest": _DIGEST})),
        "evaluation": {"partition": "test", "metric": "accuracy", "every": 1},
        "step": chance.choice(({"kind": "gradient", "rows": 64, "microbatch": 16}, local)),
        "optimizer": {"name": "adamw", "lr": 0.01, "schedule": {"name": "cosine", "warmup": 3}},
        "aggregator": {"name": "trimmed_mean", "trim": 1},
        "rounds": 10,
        "tasks_per_round": 4,
        "growth": [{"round": 3, "tasks": 6}, {"round": 5, "tasks": 9}],
        "seed": 7,
        "replication": {"name": "fixed", "replicas": 3, "max_replicas": 5},
        "audit": {"probability": 0.1},
        "separation": ["payout"],
        "price": chance.choice(
            ("1000000000000000", {"name": "cost", "per_tflop": "1000000000", "ceiling": "1000000000000"})
        ),
        "budget": "1000000000000000000",
        "deadlines": {"lease_s": 60, "end": "2026-12-01T00:00:00Z"},
        "stop": [{"metric": "accuracy", "at": 0.9}, {"spent": "5"}, {"date": "2026-12-01T00:00:00Z"}],
    }
