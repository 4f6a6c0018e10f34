"""Tables of commands: whole in a pipe, and readable on a narrow terminal."""

from io import StringIO

from rich.console import Console
from rich.table import Table

from gradmarket import terminal


def printed_on(console: Console, stream: StringIO) -> str:
    table = Table("id", "why")
    table.add_row("a" * 16, "a reason of more than eighty letters, " * 4)
    terminal.print_table(table, console)
    return stream.getvalue()


def test_nothing_is_cut_in_a_pipe() -> None:
    stream = StringIO()
    text = printed_on(Console(file=stream, width=80), stream)
    assert "a reason of more than eighty letters, " * 4 in text


def test_a_terminal_is_not_exceeded() -> None:
    stream = StringIO()
    text = printed_on(Console(file=stream, width=80, force_terminal=True, color_system=None), stream)
    assert max(map(len, text.splitlines())) == 80
