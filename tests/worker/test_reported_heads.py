"""A worker compares a job's earlier log heads with later ones, across any restart."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner, Result

from gradmarket.cli import app
from gradmarket.market.features.log import job_log
from gradmarket.market.features.log.job_log import RESTORED, encode_restart
from gradmarket.market.messages import LogHead
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Hash
from gradmarket.market.wire.log_proofs import LeafHashes, PublishedRestart
from tests.lanes import FULL, leave_to_full
from tests.worker.conftest import Verified
from tests.worker.fake_market import FakeMarket
from tests.worker.test_worker_verify import settle, write_log
from worker.features.verify.reported_heads import load_reported_heads
from worker.markets.worker_context import WorkerContext


def compute_soon() -> int:
    """Returns the time of a restore after all heads, by clocks that are nearly the same."""
    return int(time.time()) + 60


def grow(fake_market: FakeMarket, *leaves: bytes) -> None:
    for leaf in leaves:
        fake_market.logged[leaf.decode()] = leaf


def admit_restore(fake_market: FakeMarket, at: int) -> None:
    """Logs the admission of a restore, as a service does that begins again from this log."""
    tree = fake_market.log_tree()
    number, kept = len(tree), LogHead(fake_market.job.id, len(tree), Hash(tree.compute_root()))
    fake_market.logged[f"restart {at}"] = encode_restart(RESTORED, kept, at)
    fake_market.restarts += (PublishedRestart(number=number, batch=RESTORED, at=at),)


@pytest.fixture
def logging_market(fake_market: FakeMarket, worked: Callable[[], WorkerContext], verified: Verified) -> FakeMarket:
    """A market that showed the worker a head of four leaves beside its verdicts', and has logged two since."""
    worked()
    write_log(fake_market)
    grow(fake_market, b"a", b"b", b"c", b"d")
    fake_market.shows_head = True
    assert verified() == (0, set())
    grow(fake_market, b"e", b"f")
    return fake_market


def test_a_log_that_only_grows_is_proven_over_every_restart_of_the_worker(
    logging_market: FakeMarket, verified: Verified, tmp_path: Path
) -> None:
    assert verified() == verified() == (0, set())
    (path,) = (tmp_path / "heads").iterdir()
    sizes = [told.head.size for told in load_reported_heads(path)]
    assert sizes == [len(logging_market.logged) - 2, len(logging_market.logged)], "each once"
    path.write_bytes(path.read_bytes() + b"{cut sho")
    assert verified() == (0, set())


def swap_leaf(fake_market: FakeMarket) -> None:
    fake_market.logged["b"] = b"another"


def drop_leaves(fake_market: FakeMarket) -> None:
    for name in ("d", "e", "f"):
        del fake_market.logged[name]


def hide_log(fake_market: FakeMarket) -> None:
    fake_market.shows_head = False


def begin_anew_unadmitted(fake_market: FakeMarket) -> None:
    drop_leaves(fake_market)
    grow(fake_market, b"g", b"h", b"i", b"j")


def admit_an_older_restore(fake_market: FakeMarket) -> None:
    """Admits a restore that was over before the worker got the head that is gone now."""
    drop_leaves(fake_market)
    admit_restore(fake_market, 1)
    grow(fake_market, b"g", b"h", b"i", b"j")


def admit_a_restore_to_come(fake_market: FakeMarket) -> None:
    """One that would excuse every other history, for good."""
    drop_leaves(fake_market)
    admit_restore(fake_market, 2**40)
    grow(fake_market, b"g", b"h", b"i", b"j")


def admit_unlogged_restart(fake_market: FakeMarket) -> None:
    begin_anew_unadmitted(fake_market)
    number = list(fake_market.logged).index("g")
    fake_market.restarts = (PublishedRestart(number=number, batch=RESTORED, at=compute_soon()),)


def admit_after_other_leaves(fake_market: FakeMarket) -> None:
    """It kept more leaves than it admits: the leaf names another log than the one before it."""
    begin_anew_unadmitted(fake_market)
    kept, at = LogHead(fake_market.job.id, 1, Hash(bytes(32))), compute_soon()
    fake_market.logged["g"] = encode_restart(RESTORED, kept, at)
    fake_market.restarts = (PublishedRestart(number=list(fake_market.logged).index("g"), batch=RESTORED, at=at),)


@pytest.mark.parametrize(
    "lie",
    leave_to_full(
        [
            swap_leaf,
            drop_leaves,
            hide_log,
            begin_anew_unadmitted,
            admit_an_older_restore,
            admit_a_restore_to_come,
            admit_unlogged_restart,
            admit_after_other_leaves,
        ],
        2,
    ),
)
def test_another_history_is_found_by_an_earlier_head_and_kept_as_evidence(
    logging_market: FakeMarket, verified: Verified, tmp_path: Path, lie: Callable[[FakeMarket], None]
) -> None:
    honest = dict(logging_market.logged)
    lie(logging_market)
    assert verified() == (1, {"forked_log", "grievance"})
    logging_market.logged, logging_market.shows_head, logging_market.restarts = honest, True, ()
    assert verified()[0] == 1, "it is not forgotten when the market tells the first one again"
    (path,) = (tmp_path / "heads").glob("*.jsonl")
    domain, signer = logging_market.job.ledger.domain(), address_of(logging_market.job.signer)
    told = [(one.head.struct(), one.head.signature) for one in load_reported_heads(path)]
    kept = [LeafHashes.model_validate_json(file.read_bytes()).hashes for file in path.parent.glob("*.json")]
    convicting = [job_log.find_signed_fork(domain, signer, told[0], other, one) for other in told[1:] for one in kept]
    assert any(convicting) or lie in (drop_leaves, hide_log), "any third party sees it by what is kept"


@FULL
def test_a_service_that_was_restored_admits_it_and_is_no_liar(
    logging_market: FakeMarket, verified: Verified, tmp_path: Path
) -> None:
    drop_leaves(logging_market)
    admit_restore(logging_market, compute_soon())
    grow(logging_market, b"g")
    done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "its service was restored at Unix time" in done.output
    grow(logging_market, b"h", b"i", b"j")
    assert verified() == (0, set())


@pytest.mark.parametrize(("at", "excused"), leave_to_full([(1, False), (None, True)]))
def test_a_batch_s_head_counts_from_the_batch_s_settlement(
    fake_market: FakeMarket,
    worked: Callable[[], WorkerContext],
    verified: Verified,
    worker_key: PrivateKey,
    at: int | None,
    excused: bool,
) -> None:
    """A restore that was over before excuses nothing; this worker got no head, so it has the batch's alone."""
    worked()
    head = write_log(fake_market)
    settle(fake_market, worker_key, [0, 1, 2], head)
    fake_market.logged = dict(list(fake_market.logged.items())[:1])
    admit_restore(fake_market, at or compute_soon())
    grow(fake_market, b"g", b"h")
    fake_market.shows_head = True
    found = verified()[1]
    assert ("forked_log" in found) is not excused


def test_a_head_that_nobody_signed_is_named(
    logging_market: FakeMarket, verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsigned = logging_market.published_head().model_copy(update={"signature": b"\1" * 65})
    monkeypatch.setattr(logging_market, "published_head", lambda: unsigned)
    assert verified() == (1, {"unsigned_head"})


def compare_observers(verified: Verified, folder: Path, happen: Callable[[], None]) -> Result:
    """Compares this worker's heads from before an event with another worker's from after it."""
    export = folder / "theirs.json"
    (path,) = (folder / "heads").glob("*.jsonl")
    before = path.read_bytes()
    happen()
    verified()
    path.write_bytes(path.read_bytes().removeprefix(before))
    done = CliRunner().invoke(app, ["wallet", "heads", "export", str(export), "--data", str(folder)])
    assert done.exit_code == 0, done.output
    path.write_bytes(before)
    return CliRunner().invoke(app, ["wallet", "heads", "compare", str(export), "--data", str(folder)])


@pytest.mark.parametrize("lie", leave_to_full([None, swap_leaf, begin_anew_unadmitted], 2))
def test_two_observers_find_two_histories_by_one_command(
    logging_market: FakeMarket, verified: Verified, tmp_path: Path, lie: Callable[[FakeMarket], None] | None
) -> None:
    """The other observer got the same log later on, or another one."""
    compared = compare_observers(verified, tmp_path, lambda: None if lie is None else lie(logging_market))
    assert compared.exit_code == int(lie is not None), compared.output
    assert ("one history each" in compared.output) is (lie is None)
    assert ("Both are signed" in compared.output) is (lie is not None)


@pytest.mark.parametrize("size", leave_to_full(["fewer leaves", "as many", "more"]))
def test_two_observers_do_not_convict_a_service_that_admits_a_restore_between_them(
    logging_market: FakeMarket, verified: Verified, tmp_path: Path, size: str
) -> None:
    def restore() -> None:
        for name in "cdef":
            del logging_market.logged[name]
        admit_restore(logging_market, compute_soon())
        grow(logging_market, *{"fewer leaves": [], "as many": [b"g"], "more": [b"g", b"h", b"i"]}[size])

    compared = compare_observers(verified, tmp_path, restore)
    assert compared.exit_code == 0, compared.output
    assert "was restored" in compared.output
    assert "Both are signed" not in compared.output


def test_a_market_that_is_silent_leaves_the_comparison_open(
    logging_market: FakeMarket, verified: Verified, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall_silent() -> None:
        verified()
        monkeypatch.setattr(FakeMarket, "published_head", lambda _self: 1 / 0)

    compared = compare_observers(verified, tmp_path, fall_silent)
    assert compared.exit_code == 0, compared.output
    assert "one history each" not in compared.output
    assert "1 of them only by heads of one size" in compared.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no heads of logs: heads: Invalid JSON"),
        ("[1]", "has no heads of logs: heads: write an object"),
        ("{}", "has no heads of logs: heads.jobs: Field required"),
        (None, "cannot be read: No such file or directory"),
        ("folder", "is a folder"),
    ],
)
def test_a_malformed_file_of_heads_is_refused_in_words(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "heads.json"
    if text == "folder":
        file.mkdir()
    elif text is not None:
        file.write_text(text)
    done = CliRunner().invoke(app, ["wallet", "heads", "compare", str(file), "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert f"{file} {words}" in " ".join(done.output.split())
    assert "fix: name what `gradmarket wallet heads export FILE` wrote" in done.output
