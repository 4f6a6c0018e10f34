"""A newcomer's way from the wheel to the first accepted gradient of its own model, each step timed.

`python journey.py WHEEL PINS ANVIL FOLDER [PACKAGES]`: prints a JSON line for each step, and last the CPU of
all. It needs the standard library alone, so that it runs in a bare container. WHEEL is the package, PINS the versions
that pip installs, ANVIL the program of the local chain, FOLDER a new folder for everything else. Packages in the folder
PACKAGES are not installed again.
"""

import json
import os
import resource
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

EXTRAS: Final = "sdk,service,worker"
LATEST_S: Final = 900.0
STARTER: Final = "nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, len(classes))"
OWN: Final = "nn.Linear(x.shape[1], 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, len(classes))"
"""The newcomer's model, in place of the one that the script came with."""


class Journey:
    """Programs in a new environment; each step's seconds are printed as it ends."""

    def __init__(self, folder: Path, anvil: Path) -> None:
        self.bin, self.folder = folder / "venv" / "bin", folder
        path = os.pathsep.join((str(self.bin), str(anvil.parent), os.environ.get("PATH", os.defpath)))
        self.environment = {**os.environ, "PATH": path, "GRADMARKET_DATA": str(folder / "data")}

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, object]]:
        began, facts = time.perf_counter(), dict[str, object]()
        yield facts
        print(json.dumps({"step": name, "seconds": time.perf_counter() - began, **facts}), flush=True)

    def ran(self, *command: str) -> str:
        """Returns a program's output; ends with it where the program fails."""
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=self.environment)
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def running(self, log: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Runs a program beside the others; terminates it at the end and waits for it."""
        with (self.folder / log).open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self.folder, env=self.environment)
            try:
                yield process
            finally:
                process.terminate()
                process.wait()

    def until(self, process: subprocess.Popen[bytes], log: str, holds: Callable[[], bool]) -> None:
        latest = time.monotonic() + LATEST_S
        while not holds():
            if process.poll() is not None or time.monotonic() > latest:
                sys.exit(f"{log} came to nothing:\n{(self.folder / log).read_text()}")
            time.sleep(0.02)


def main(wheel: str, pins: str, anvil: str, folder: str, borrowed: str = "") -> None:
    journey = Journey(Path(folder), Path(anvil))
    with journey.step("environment"):
        venv.create(journey.folder / "venv", with_pip=True)
        if borrowed:
            (packages,) = journey.folder.glob("venv/lib/python3*/site-packages")
            (packages / "borrowed.pth").write_text(borrowed)
    with journey.step("install") as facts:
        output = journey.ran("pip", "install", "--no-compile", "--constraint", pins, f"{wheel}[{EXTRAS}]")
        facts["downloaded"] = output.count("Downloading ")
    with journey.step("new"):
        journey.ran("gradmarket", "new", "mine", "--for", "table", "--alone")
        script = journey.folder / "mine" / "train.py"
        mine = script.read_text().replace(STARTER, OWN)
        assert OWN in mine, "the starter's model is another one now"
        script.write_text(mine)
    _first_accepted(journey)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"step": "cpu", "seconds": used.ru_utime + used.ru_stime}), flush=True)


def _first_accepted(journey: Journey) -> None:
    address, heard = journey.folder / "data" / "url", journey.folder / "worker.log"
    with ExitStack() as stack:
        with journey.step("serve"):
            serve = ("gradmarket", "serve", "--data", "data", "--port", "0")
            service = stack.enter_context(journey.running("serve.log", *serve))
            journey.until(service, "serve.log", lambda: address.exists() and bool(address.read_text().strip()))
        with journey.step("worker"):
            run = ("gradmarket", "worker", "run", "--market", address.read_text().strip(), "--data", "worker", "--json")
            worker = stack.enter_context(journey.running("worker.log", *run))
            journey.until(worker, "worker.log", lambda: _has_event(heard, "no_estimate"))
        with journey.step("job"):
            script = stack.enter_context(journey.running("train.log", "python", "mine/train.py"))
            journey.until(script, "train.log", lambda: _has_event(heard, "leased"))
        with journey.step("accepted"):
            journey.until(worker, "worker.log", lambda: _has_event(heard, "accepted"))
    journey.ran("gradmarket", "chain", "down", "--data", "data")


def _has_event(log: Path, event: str) -> bool:
    return f'{{"event": "{event}"' in log.read_text()


if __name__ == "__main__":
    main(*sys.argv[1:])
