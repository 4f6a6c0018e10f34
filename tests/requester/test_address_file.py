"""The file with the service's address: a reader gets all of it or nothing."""

import threading
from pathlib import Path

from requester.cli import write_address
from tests.lanes import FULL


@FULL
def test_nobody_reads_half_an_address(tmp_path: Path) -> None:
    path, read, over = tmp_path / "url", set[str](), threading.Event()
    write_address(path, "http://here:1")

    def look() -> None:
        while not over.is_set():
            read.add(path.read_text())

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(2000):
        write_address(path, "http://here:1")
    over.set()
    thread.join()
    assert read == {"http://here:1\n"}
    assert [file.name for file in tmp_path.iterdir()] == ["url"]
