"""How far an upload came, as one line on a terminal that is gone at its end; nothing elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from gradmarket.terminal import ShownConsole


class UploadLine:
    """Shows the bytes sent of all files together, and where the service had some of the present one before."""

    def __init__(self, shown: Progress, length: int) -> None:
        self._shown, self._task = shown, shown.add_task("", total=length)

    def begin_file(self, name: str, length: int) -> Callable[[int], None]:
        """Returns the function that receives the number of bytes sent of the next file, of `length` bytes."""
        before = int(self._shown.tasks[self._task].completed)
        begun = False

        def show_sent(sent: int) -> None:
            nonlocal begun
            if begun or sent == 0:
                self._shown.update(self._task, completed=before + sent, description=None if begun else name)
            else:  # anew, or the bytes that were there would count as sent at once
                where = f"{name} from {decimal(sent)} on" if sent < length else name
                self._shown.reset(self._task, completed=before + sent, description=where)
            begun = True

        return show_sent


@contextmanager
def display_upload(length: int, hidden: bool = False) -> Iterator[UploadLine]:
    """Yields the line for files of `length` bytes in all, on standard error."""
    console = ShownConsole(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    hidden = hidden or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as shown:
        yield UploadLine(shown, length)
