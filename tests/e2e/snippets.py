"""Runs a documentation page's blocks in order, as a reader does: commands, scripts, and services that stay beside."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from contracts.local import LocalChain
from tests.patience import PATIENCE_S, wait_until
from tests.processes import answers, free_port

BLOCK: Final = re.compile(r"^```(sh|python)\n(.*?)^```", re.S | re.M)
STAYS: Final = ("gradmarket serve", "gradmarket worker run", "gradmarket auditor run")
"""Commands that a reader leaves running in a terminal of their own."""


class Reader:
    """Follows a page in an empty folder; the port of the examples is another one here."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.port = str(free_port())
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._folder, self._ending = folder, ExitStack()
        self._environment = {**os.environ, "PATH": programs, "GRADMARKET_PORT": self.port}
        self._environment |= {"GRADMARKET_AUDITOR": "cpu", **environment}

    def follow(self, page: Path) -> list[str]:
        """Runs every block of the page; returns the output of each command or script."""
        return [said for kind, block in BLOCK.findall(page.read_text()) for said in self._block(kind, block)]

    def _block(self, kind: str, block: str) -> Iterator[str]:
        if kind == "python":
            yield self._run([sys.executable, "-c", block])
            return
        for line in block.replace("8700", self.port).strip().splitlines():
            if line.startswith(STAYS):
                self._ending.enter_context(self._running(line))
            else:
                yield self._run(["bash", "-euo", "pipefail", "-c", line])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    @contextmanager
    def _running(self, line: str) -> Iterator[None]:
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(line.split(), cwd=self._folder, env=self._environment, stdout=log, stderr=log)
        try:
            if line.startswith("gradmarket serve"):
                wait_until(lambda: answers(f"http://127.0.0.1:{self.port}/v1/ready"))
            elif line.startswith("gradmarket worker run"):
                wait_until((self._folder / line.split()[-1] / "wallet.key").is_file)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)

    def leave(self) -> None:
        """Ends the running processes and the local chain."""
        self._ending.close()
        chain = LocalChain.find_running_chain(self._folder / "data" / "chain")
        if chain is not None:
            chain.stop()
