"""A feature's fields are refused where the service or the worker is built without it, in one sentence."""

from pathlib import Path
from typing import Any

import pytest

from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.job import JobSpec
from requester.features import FEATURES
from requester.moves.admission import check_features_serve
from worker import run
from worker.settings import WorkerSettings

NAMES = {feature.name for feature in FEATURES}
SPEC: dict[str, Any] = {
    "name": "digits",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 8},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 1,
    "price": "7",
}
LOCAL = {"kind": "local", "rows": 8, "steps": 8, "optimizer": {"name": "sgd", "lr": 0.1}, "window": 2}
STAKE = {"validators": ["0x" + "11" * 20], "threshold": 1, "bond": "7"}
TWO = {"name": "fixed", "replicas": 2, "max_replicas": 2}
HELD = {"inputs": {"x": {"dtype": "float32", "shape": [4]}}, "holders": ["0x" + "11" * 20], "least_rows": 8}
FIELDS: dict[str, dict[str, Any]] = {
    "windows": {"step": LOCAL, "audit": {"probability": 0.5}},
    "loss_change": {
        "verifier": {"name": "loss_change"},
        "replication": {"name": "audited", "audit": 0.5},
    },
    "tolerance": {"verifier": {"name": "tolerance"}, "audit": {"probability": 0.5}, "replication": TWO},
    "claims": {"audit": {"probability": 0.5, "claims": 1}},
    "auditors": {"audit": {"probability": 0.5, "auditors": {"count": 2, "agree": 2}}},
    "planted": {"audit": {"probability": 0.5, "planted": 0.5}},
    "stakes": {"stake": STAKE, "audit": {"probability": 0.5}},
    "vesting": {"vesting": STAKE, "audit": {"probability": 0.5}},
    "private": {"data": HELD},
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_a_deleted_feature_is_refused_and_no_other(name: str) -> None:
    spec = JobSpec.model_validate({**SPEC, **FIELDS[name]})
    check_features_serve(spec, NAMES)
    check_features_serve(JobSpec.model_validate(SPEC), NAMES - {name})
    with pytest.raises(JobRefused, match=f"this service is built without {name}"):
        check_features_serve(spec, NAMES - {name})


@pytest.mark.parametrize(
    "option",
    [{"dataset": Path("rows"), "jobs": ("00" * 8,)}, {"page": 0}, {"consents": (Path("consent"),)}, {"discover": True}],
)
def test_a_worker_refuses_the_option_of_an_absent_feature(
    option: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "FEATURES", ())
    with pytest.raises(Refused, match="this worker is built without"):
        run.run_worker(WorkerSettings(data=tmp_path, **option))
