"""A copied folder at work beside the first: both have one wallet, and each learns of the other's answers."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

from tests.worker.fake_market import FakeMarket
from tests.worker.test_worker_loop import MakeContext, all_confirmed, journal, work
from worker.journal import Journal
from worker.markets.loop import Loop
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlightFolder


def copied(context: WorkerContext, folder: Path) -> tuple[Loop, StringIO]:
    settings, said = context.settings.model_copy(update={"data": folder}), StringIO()
    twin = replace(context, settings=settings, journal=Journal(stream=said))
    return Loop(twin, InFlightFolder(folder / "held")), said


def test_an_answer_of_another_folder_with_this_wallet_is_logged_once(
    fake_market: FakeMarket, make_context: MakeContext, tmp_path: Path
) -> None:
    context = make_context(fake_market)
    first = work(context, lambda: all_confirmed(fake_market))
    second, said = copied(context, tmp_path / "copy")
    for loop in (first, second, second):
        for row in fake_market.rows.values():
            row.heard = False
        loop.turn(wait_s=0.0)
    assert said.getvalue().count("was answered with this wallet") == 1
    assert str(tmp_path / "copy") in said.getvalue()
    assert "was answered with this wallet" not in journal(context)


def test_a_commitment_that_was_made_otherwise_is_a_twin_s(
    fake_market: FakeMarket, make_context: MakeContext, tmp_path: Path
) -> None:
    context = make_context(fake_market)
    first = work(context, lambda: bool(fake_market.rows))
    held = next(iter(first._replica_files.held.values()))
    first._refused(held.replica, "conflict", "another commitment was made for this replica")
    assert journal(context).count("was answered with this wallet") == 1
