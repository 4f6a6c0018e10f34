"""Flower as it is deployed: a SuperLink, SuperNodes and an app, each round by processes of its own.

python flower_deployed.py ELEMENTS ROUNDS    two workers that send recorded numbers
python flower_deployed.py OPTIONS-AS-JSON    the app's options: holders that train on rows of their own
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKERS = 2
WARM = 1
APP = Path(__file__).with_name("flower_app")
LATEST_S = 300.0


def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def listening(at: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", at)) == 0


def wait_for(true: object, subject: str) -> None:
    end = time.monotonic() + LATEST_S
    while not true():  # type: ignore[operator]
        if time.monotonic() > end:
            raise RuntimeError(f"not within {LATEST_S:.0f} s: {subject}")
        time.sleep(0.05)


def main(options: dict[str, object]) -> None:
    """Runs the app with these options, `workers` and `rounds` among them; prints its counted rounds' seconds.

    With `held`, the file of holders' rows, it prints the accuracy after the last round first.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, tools, link = Path(name), Path(sys.executable).parent, port()
        shutil.copytree(APP, folder / "app")
        (folder / "config.toml").write_text(
            f'[superlink]\ndefault = "bench"\n\n[superlink.bench]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
        )
        environment = os.environ | {
            "FLWR_HOME": name,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{tools}:{os.environ['PATH']}",
        }
        started: list[subprocess.Popen[bytes]] = []

        def start(*command: str) -> None:
            log = (folder / "log").open("ab")
            process = subprocess.Popen([str(tools / command[0]), *command[1:]], env=environment, stdout=log, stderr=log)
            started.append(process)

        try:
            own = ("--host", "127.0.0.1", "--port", str(link), "--disable-runtime-dependency-installation")
            start("flower-superlink", "--insecure", *own)
            wait_for(lambda: listening(link), "the SuperLink listens")
            for rank in range(int(str(options["workers"]))):
                at = ("--superlink", f"127.0.0.1:{link}", "--port", str(port()))
                start("flower-supernode", "--insecure", *at, "--node-config", f"partition-id={rank}")
            config = " ".join(f"{key}={json.dumps(value)}" for key, value in {**options, "out": name}.items())
            run = [str(tools / "flwr"), "run", str(folder / "app"), "bench", "-c", config]
            done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=120, check=False)
            if done.returncode:
                raise RuntimeError(done.stdout + done.stderr)
            wait_for((folder / "seconds").exists, f"the rounds are over; {(folder / 'log').read_text()[-500:]}")
            print(*json.loads((folder / "accuracy").read_text()))
            print(json.dumps(json.loads((folder / "seconds").read_text())[WARM:]))
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(30)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [elements, count]:
            main({"elements": int(elements), "rounds": WARM + int(count), "workers": WORKERS})
        case [asked]:
            main(json.loads(asked))
