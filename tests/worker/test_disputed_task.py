"""Whose answers can be disputed: two that differ, of one class or of two, and of a job whose tasks can be traced."""

from pathlib import Path
from typing import Any, cast

import pytest

from gradmarket.market.errors import Refused
from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Address, Digest
from gradmarket.sealing import load_or_create_sealing_key
from tests.features.test_served_fields import LOCAL, SPEC
from worker.features.disputes.disputed_task import DisputedTask, check_disputable
from worker.wallet import load_wallet

ANN, BEA = Address("0x" + "11" * 20), Address("0x" + "22" * 20)
ROOTS = Digest("blake3:" + "1" * 64), Digest("blake3:" + "2" * 64)
HOLDERS = {"inputs": {"x": {"dtype": "float32", "shape": [4]}}, "holders": [str(ANN)], "least_rows": 8}
ALONE = {"name": "fixed", "replicas": 1, "max_replicas": 1}
NOISED = {"rows": 8, "per_row": {"clip_norm": 1.0, "noise_multiplier": 4.0, "epsilon": 8, "delta": 1e-5}}


def disputed(*classes: str) -> DisputedTask:
    none = cast(Any, None)
    of = dict(zip((ANN, BEA), classes, strict=True))
    return DisputedTask(none, none, none, none, dict(zip((ANN, BEA), ROOTS, strict=True)), of, None)


def test_sides_that_are_named_wrongly_are_counted_as_they_are() -> None:
    here = disputed("cpu/a", "cpu/a")
    assert set(here.choose_sides([ANN, BEA, ANN, BEA])) == {ANN, BEA}
    with pytest.raises(Refused, match="has two sides, and 1 are named"):
        here.choose_sides([ANN, ANN])
    with pytest.raises(Refused, match="has two sides, and 3 are named"):
        here.choose_sides([ANN, BEA, Address("0x" + "33" * 20)])


def test_sides_of_two_classes_are_heard_and_judged_by_their_rounding() -> None:
    here = disputed("cpu/a", "cpu/b")
    sides = here.choose_sides(())
    assert here.is_across(sides)
    assert not disputed("cpu/a", "cpu/a").is_across(sides)
    with pytest.raises(Refused, match="this machine is cpu/b"):
        here.check_class("cpu/b", [ANN])


@pytest.mark.parametrize(
    ("more", "why", "remedy"),
    [
        ({"step": LOCAL, "audit": {"probability": 0.5}}, "commit to windows", "step.window"),
        ({"data": HOLDERS, "replication": ALONE}, "the rows stay with their holders", "without holders"),
        (
            {"data": HOLDERS, "replication": ALONE, "step": NOISED},
            "the rows stay with their holders",
            "without holders",
        ),
    ],
)
def test_a_job_whose_tasks_nobody_can_trace_is_refused_in_one_sentence(
    more: dict[str, Any], why: str, remedy: str
) -> None:
    with pytest.raises(Refused, match=why) as refused:
        check_disputable(JobSpec.model_validate({**SPEC, **more}))
    assert remedy in refused.value.remedy
    check_disputable(JobSpec.model_validate(SPEC))


def test_an_auditor_answers_a_dispute_with_the_key_that_sealed_its_answer(tmp_path: Path) -> None:
    sealing = load_or_create_sealing_key(tmp_path, "ann")
    assert load_or_create_sealing_key(tmp_path, "ann") == sealing
    assert load_wallet(tmp_path, None).address == sealing.signer
    (tmp_path / "wallet.key").write_text("nonsense")
    with pytest.raises(Refused, match="is no key of an auditor"):
        load_or_create_sealing_key(tmp_path, "ann")


def test_two_auditors_that_start_at_once_hold_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_or_create_sealing_key(tmp_path, "ann")
    monkeypatch.setattr(Path, "exists", lambda _path: False)  # the other one looked before the first had written
    assert load_or_create_sealing_key(tmp_path, "ann") == first
    assert [path.name for path in tmp_path.iterdir()] == ["wallet.key"]
