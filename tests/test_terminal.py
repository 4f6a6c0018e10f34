"""Strangers' text controls no terminal or page: one filter covers all output, and no control passes it."""

import ast
import json
import re
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.panel import Panel
from rich.table import Table

from gradmarket.client.client_errors import parse_problem
from gradmarket.commands import job_commands, ledger, progress
from gradmarket.commands.edge import print_json
from gradmarket.demo.workers import JOB
from gradmarket.market import admissible
from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.job import JobSpec
from gradmarket.market.money import TokenUnit
from gradmarket.market.printable import escape_controls, find_text_fault, printable_lines, replace_controls
from gradmarket.market.terms import JobState
from gradmarket.market.views.payment_views import BooksView, EntryKind, EntryView, LedgerView
from gradmarket.market.wire.audit_messages import AuditRequest
from gradmarket.market.wire.poll import FaultKind, LeaseReturn, PollRequest, StepFault
from gradmarket.mistakes import print_error
from gradmarket.pages import Templates
from gradmarket.sdk.curve import _draw_svg
from gradmarket.sdk.job_handle import open_progress_bar
from gradmarket.terminal import ShownConsole, echo_text
from requester import logs
from tests import source_tree
from tests.shown import shown_job
from worker.journal import Journal

EVIL: Final = "\x1b]52;c;aGFja2Vk\x07 \x1b[2J \x9b1A \u202eevas\u2066 \u2028 [/red] [bold] \ud800 \U000e0041 \r\n"
"""Writes a clipboard, clears a screen, turns a row around, begins lines, and is wrong markup."""
BAD: Final = {letter for letter in EVIL if find_text_fault(letter)} - {"\n"}
OURS: Final = ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[?25")
TOKEN: Final = TokenUnit("GRAD", 18)


def controls(shown: str) -> set[str]:
    return {letter for letter in shown if letter in BAD}


def test_terminal_controls_in_text_are_found() -> None:
    assert len(BAD) == 9


@given(st.text())
def test_the_filter_leaves_no_control_and_everything_else(text: str) -> None:
    shown = replace_controls(text)
    assert find_text_fault(shown) == ""
    assert len(shown) == len(text)
    assert all(letter == there or there == "?" for letter, there in zip(text, shown, strict=True))
    assert printable_lines(text).count("\n") == text.count("\n")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_json_has_the_same_text_and_no_controls(text: str) -> None:
    shown = escape_controls(json.dumps({"a": text}, ensure_ascii=False, indent=1))
    assert json.loads(shown) == {"a": text}
    assert find_text_fault(shown.replace("\n", "")) == ""


@pytest.mark.parametrize("name", ["زهرا‌نامه", "डिजिट्स", "数字 モデル", "naïve café", "👩‍🔬", "שלום"])
def test_the_letters_of_any_language_stay(name: str) -> None:
    assert (replace_controls(name), find_text_fault(name)) == (name, "")


def _last_name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def test_no_other_module_prints() -> None:
    """But for graphdoc's own command, the scripts that `gradmarket new` writes, and logs."""
    elsewhere = {"gradmarket.terminal", "graphdoc.command", "worker.journal", "requester.logs"}
    prints = {"print", "typer.echo", "typer.secho", "click.echo", "Console", "rich.print", "sys.stdout.write"}
    last = {name.rpartition(".")[2] for name in prints}
    called = re.compile(r"\b(print|s?echo|Console|stdout\.write)\(")
    found = [
        f"{name}:{call.lineno}"
        for name, path in source_tree.list_sources()
        if name not in elsewhere and not name.startswith("gradmarket.starters") and called.search(path.read_text())
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and _last_name(call.func) in last and ast.unparse(call.func) in prints
    ]
    assert found == []


@pytest.mark.parametrize("terminal", [True, False])
def test_a_console_shows_no_strangers_control(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = StringIO()
    console = ShownConsole(file=out, force_terminal=terminal, color_system=None, width=200)
    table = Table("name")
    job = shown_job(name=EVIL, reason=EVIL, state=JobState.PAUSED)
    table.add_row(job.name.replace("[", "("))
    console.print(table)
    job_commands._print_jobs([job], TOKEN, console)
    progress.Lines(console, TOKEN).print_job_lines(job)
    console.print(progress._build_panel(job, TOKEN))
    console.print(Panel("x", title=EVIL.replace("[", "(")))
    shown = out.getvalue()
    assert "evas" in shown
    assert controls(shown) == set()


def test_a_market_s_token_and_books_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    facts = SimpleNamespace(symbol=EVIL, decimals=18)
    token, out = TokenUnit.of(facts), StringIO()
    console = ShownConsole(file=out, force_terminal=True, color_system=None, width=200)
    console.print(progress._build_panel(shown_job(), token))
    job_commands._print_jobs([shown_job()], token, console)
    books = BooksView(balanced=False, differences=[EVIL], accounts={EVIL: "1"})
    named = dict.fromkeys(("worker", "task", "replica", "tx"), EVIL)
    entry = EntryView(kind=EntryKind.DEPOSIT, debit=EVIL, credit=EVIL, amount="1", batch=None, block=None, **named)
    report = LedgerView(job=EVIL, chain_job=1, block=1, books=books, items=[entry], next=None)
    ledger._print_ledger(report, books, token)
    ledger._write_csv(report.items)
    shown = out.getvalue() + capsys.readouterr().out
    assert shown.count("evas") >= 7
    assert controls(shown) == set()


@pytest.mark.parametrize("decimals", [-1, 256, 10**12])
def test_a_market_s_token_has_no_decimals_that_stop_its_clients(decimals: int) -> None:
    with pytest.raises(Refused, match="decimals"):
        TokenUnit.of(SimpleNamespace(symbol="GRAD", decimals=decimals))


def test_live_panels_and_bars_filter_too() -> None:
    out = StringIO()
    console = ShownConsole(file=out, force_terminal=True, width=300)
    job = shown_job(name=EVIL, reason=EVIL)
    with progress.display_progress(console, TOKEN) as show:
        show(job)
    with open_progress_bar(console, TOKEN) as show:
        show(job)
    shown = out.getvalue()
    assert "evas" in shown
    for stolen in ("\x1b]52", "\x1b[2J", "\x9b", "\u202e", "\u2066", "\x07"):
        assert stolen not in shown


def test_lines_and_json_and_errors_are_printed_without(capsys: pytest.CaptureFixture[str]) -> None:
    job = shown_job(name=EVIL[:20], reason=EVIL)
    job_commands._print_job(job, TOKEN)
    echo_text(EVIL)
    print_json({"name": EVIL.replace("\ud800", "")})
    print_error(parse_problem(422, "", json.dumps({"detail": EVIL, "remedy": EVIL}).encode()), "gradmarket job list")
    shown = "".join(capsys.readouterr())
    assert shown.count("evas") == 5
    assert controls(shown) == set()


def test_the_journal_pages_and_logs_show_none(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text("<p title='{{ value }}'>{{ value }}</p>")
    said, logged = StringIO(), StringIO()
    Journal(stream=said).report("x", EVIL)
    Journal(True, said).report("x", EVIL)
    logs.configure_logging(as_json=False, to=logged)
    logs.structlog.get_logger().warning(EVIL, job=EVIL)
    logs.logging.getLogger("uvicorn").warning("%s", EVIL)
    for shown in (said.getvalue(), Templates(tmp_path).render("one.html", value=EVIL), logged.getvalue()):
        assert shown.count("evas") >= 2
        assert controls(shown) - ({"\x1b"} if shown == logged.getvalue() else set()) == set()
    assert "\x1b]" not in logged.getvalue()
    assert logged.getvalue().count("evas") == 3, "uvicorn's lines go another way: a test gave it handlers of its own"


@pytest.mark.parametrize("text", ["a\x1b[2J", "a\u202eb", "two\nlines", "\x9b1A", "\u2066"])
def test_at_the_door_a_strangers_words_are_printable_or_refused(text: str) -> None:
    made: tuple[Any, ...] = (
        lambda: PollRequest(determinism_class=text),
        lambda: LeaseReturn(replica="a-0", fence=1, reason=text),  # type: ignore[arg-type]
        lambda: StepFault(kind=FaultKind.REFUSED, message=text),
        lambda: AuditRequest(auditor=text, determinism_class="cpu"),
        lambda: AuditRequest(auditor="one", determinism_class=text),
    )
    for make in made:
        with pytest.raises(ValidationError, match="leave control and direction characters out"):
            make()
    with pytest.raises(JobRefused, match="name: has U"):
        admissible.check_job_spec(JobSpec.model_validate(JOB | {"name": text}))


def test_a_notebook_s_picture_of_a_job_shows_none() -> None:
    assert controls(_draw_svg(EVIL, {"loss": [(0, 1.0)], "held-out": []}).replace("\n", "")) == set()
