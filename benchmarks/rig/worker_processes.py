"""Workers as they are, in processes of their own, but for their steps."""

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.rig.service import Service


def start_worker(
    here: Service, step_s: float, replayed: bool = False, leases: int = 1
) -> tuple["subprocess.Popen[bytes]", Path]:
    """Returns a worker whose steps take `step_s` more (rig.paced), and its new folder, whose `log` has its output."""
    folder = here.folder / f"worker-{time.monotonic_ns()}"
    folder.mkdir()
    words = [here.url, str(folder), str(step_s), *(["replayed"] if replayed else [])]
    environment = os.environ | {"GRADMARKET_WORKER_LEASES": str(leases)}
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "benchmarks.rig.paced", *words]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log), folder


def kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
