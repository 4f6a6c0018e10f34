"""The rights of a card's child: the driver's measured needs, and nothing else. No card is needed.

A stand-in makes the driver's calls from inside a process that is confined as a child is, on nodes in a temporary root.
"""

import json
import struct
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graphdoc.runner import admitted
from graphdoc.runner.admitted import CALLS, COMPUTE, DRIVER_CALLS, READ, list_allowed_paths
from graphdoc.runner.confine import build_instructions
from tests.patience import PATIENCE_S

ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
AF_UNIX, AF_INET, STREAM, SEQPACKET, CLOEXEC, NONBLOCK = 1, 2, 1, 5, 0o2000000, 0o4000


def answer(program: Sequence[bytes], architecture: int, call: int, *arguments: int) -> int:
    """Runs a filter as the kernel would: https://docs.kernel.org/networking/filter.html."""
    data = struct.pack("=IIQ6Q", call, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    held, at = 0, 0
    while True:
        code, then, otherwise, value = struct.unpack("=HBBI", program[at])
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += then if holds else otherwise


@pytest.mark.parametrize("machine", CALLS)
def test_the_filter_of_a_card_answers_call_by_call(machine: str) -> None:
    calls = CALLS[machine]
    started, locked = build_instructions(calls, driver=True), build_instructions(calls, driver=False)
    for name, number in calls.forbidden.items():
        assert answer(locked, calls.architecture, number, *admitted.DRIVER_SOCKET) == EPERM, name
        expected = ALLOW if name in DRIVER_CALLS else EPERM
        assert answer(started, calls.architecture, number, *admitted.DRIVER_SOCKET) == expected, name
    for program in (started, locked):
        others = set(range(470)) - set(calls.forbidden.values()) - {calls.clone, calls.clone3}
        assert {answer(program, calls.architecture, number) for number in others} == {ALLOW}
        assert answer(program, calls.architecture, calls.clone3) == ENOSYS
        assert answer(program, calls.architecture, calls.clone, 17) == EPERM
        assert answer(program, calls.architecture, calls.clone, 0x10000 | 0x100) == ALLOW
        assert answer(program, 0x40000003, 1) == EPERM
        assert answer(program, calls.architecture, 0x40000000 | 1) == EPERM


@pytest.mark.parametrize("machine", CALLS)
def test_the_driver_s_socket_is_of_one_kind_alone(machine: str) -> None:
    calls = CALLS[machine]
    program = build_instructions(calls, driver=True)
    kinds = [kind | flags for kind in range(1, 11) for flags in (0, CLOEXEC, NONBLOCK, CLOEXEC | NONBLOCK)]
    taken = {
        (domain, kind)
        for domain in range(46)
        for kind in kinds
        if answer(program, calls.architecture, calls.forbidden["socket"], domain, kind) == ALLOW
    }
    assert taken == {(AF_UNIX, SEQPACKET | CLOEXEC)} == {(1, 0x80005)}


def make_card(root: Path, *names: str) -> Path:
    for name in ("nvidiactl", "nvidia-uvm", *names):
        node = root / "dev" / name
        node.parent.mkdir(parents=True, exist_ok=True)
        node.touch()
    return root


def of_card(root: Path) -> dict[str, int]:
    """Returns the paths that a card's child may open beyond the processor's."""
    return dict(set(list_allowed_paths("cuda", root)) - set(list_allowed_paths("cpu", root)))


def test_one_card_takes_its_three_nodes_and_its_threads_names(tmp_path: Path) -> None:
    found = of_card(make_card(tmp_path, "nvidia0", "nvidia-modeset", "nvidia-uvm-tools", "mem"))
    nodes = {str(tmp_path / "dev" / name): COMPUTE for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "dxg")}
    assert found == {**nodes, "/proc/self/task": READ | admitted.WRITE_FILE | admitted.TRUNCATE}


def test_no_device_reads_what_a_system_keeps() -> None:
    for device in ("cpu", "cuda"):
        paths = {path for path, _ in list_allowed_paths(device)}
        assert not paths & {
            "/",
            "/etc",
            "/sys",
            "/dev",
            "/proc",
            "/proc/driver",
            "/home",
            "/root",
            "/tmp",
            "/var",
            "/run",
        }


def test_several_cards_are_named_by_the_driver_s_folder(tmp_path: Path) -> None:
    make_card(tmp_path, "nvidia10", "nvidia2")
    found = of_card(tmp_path)
    assert [node.name for node in admitted.list_card_nodes(tmp_path)] == ["nvidia2", "nvidia10"]
    assert found[str(tmp_path / "proc/driver/nvidia")] == found[str(tmp_path / "proc/devices")] == READ


def test_an_instance_of_a_card_takes_the_nodes_that_the_driver_names(tmp_path: Path) -> None:
    """As NVIDIA's MIG user guide shows the files: no instance has run."""
    make_card(tmp_path, "nvidia0", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap30", "nvidia-caps/nvidia-cap31")
    capabilities = tmp_path / "proc/driver/nvidia/capabilities"
    for place, minor in (("gpu0/mig/gi1", 30), ("gpu0/mig/gi1/ci0", 31), ("mig", 1)):
        (capabilities / place).mkdir(parents=True, exist_ok=True)
        (capabilities / place / "access").write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\n")
    (capabilities / "mig/access").rename(capabilities / "mig/config")
    caps = {path: rights for path, rights in of_card(tmp_path).items() if "nvidia-caps" in path}
    folder = tmp_path / "dev/nvidia-caps"
    assert caps == {str(folder / f"nvidia-cap{minor}"): admitted.READ_FILE for minor in (30, 31)}


ATTEMPTS = """
    import ctypes, json, os, platform, socket, sys, threading
    from pathlib import Path
    from graphdoc.runner.admitted import CALLS
    from graphdoc.runner.confine import confine_process, forbid_driver_calls

    root, measures = Path(sys.argv[1]), sys.argv[2].split(",")
    held = confine_process(os.getppid(), False, "cuda", 2**28, root, measures)
    NAME = b"\\0cuda-uvmfd-" + str(os.getpid()).encode()

    def outcome(attempt):
        try:
            attempt()
        except OSError as error:
            return type(error).__name__
        return "done"

    def open_driver_socket():
        opened.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))

    def name_thread():
        own = f"/proc/self/task/{threading.get_native_id()}/comm"
        os.write(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), b"cuda-EvtHandlr")
        assert Path(own).read_text().strip() == "cuda-EvtHandlr"

    def start_thread():
        threading.Thread(target=name_thread).start()

    def starting():
        yield "socket", open_driver_socket
        yield "bind", lambda: opened[0].bind(NAME)
        yield "listen", lambda: opened[0].listen(16)
        yield "thread's name", name_thread
        yield "another thread's", start_thread
        for name in ("nvidiactl", "nvidia-uvm", "nvidia0"):
            yield name, lambda name=name: os.open(root / "dev" / name, os.O_RDWR | os.O_CLOEXEC)

    def clone_child():
        if ctypes.CDLL(None, use_errno=True).syscall(CALLS[platform.machine()].clone, 17, 0, 0, 0, 0) < 0:
            raise OSError(ctypes.get_errno(), "clone")
        os._exit(0)

    def hostile():
        yield "internet", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        yield "internet 6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        yield "netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
        yield "stream", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        yield "datagram", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        yield "non-blocking", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        yield "pair", lambda: socket.socketpair()
        yield "connect", lambda: opened[0].connect("/run/docker.sock")
        yield "connect to itself", lambda: opened[0].connect(NAME)
        yield "fork", os.fork
        yield "clone", clone_child
        yield "program", lambda: os.execv("/bin/true", ["true"])
        yield "signal", lambda: os.kill(os.getppid(), 0)
        yield "shadow", lambda: open("/etc/shadow", "rb")
        yield "passwd", lambda: open("/etc/passwd", "rb")
        yield "parent's environment", lambda: open(f"/proc/{os.getppid()}/environ", "rb")
        yield "parent's memory", lambda: open(f"/proc/{os.getppid()}/mem", "rb")
        yield "parent's threads", lambda: open(f"/proc/{os.getppid()}/task/{os.getppid()}/comm", "w")
        yield "another node", lambda: os.open(root / "dev/nvidia-modeset", os.O_RDWR)
        yield "a system's node", lambda: os.open("/dev/kmsg", os.O_RDWR)
        yield "a new device", lambda: os.mknod(root / "dev/nvidia7", 0o600 | 0o020000, os.makedev(195, 7))
        yield "a new file", lambda: open(root / "dev/new", "w")
        yield "nodes listed", lambda: os.listdir("/dev")
        yield "own cgroup", lambda: open("/proc/self/oom_score_adj", "w")
        yield "socket's file", lambda: opened[0].bind(str(root / "dev/socket"))

    opened, running = [], threading.Event()
    started = {name: outcome(attempt) for name, attempt in starting()}
    kernel = threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(running.is_set, True)])
    kernel.start()
    asked = sys.argv[3].split(",") if sys.argv[3] else [name for name, _ in hostile()]
    during = {name: outcome(attempt) for name, attempt in hostile() if name in asked}
    inherited, seen = threading.Event(), {}

    def old_thread():
        inherited.wait()
        seen.update({name: outcome(attempt) for name, attempt in [*starting()][:3]})

    old = threading.Thread(target=old_thread)
    old.start()
    locked = forbid_driver_calls()
    inherited.set()
    old.join()
    after = {name: outcome(attempt) for name, attempt in starting()}
    running.set()
    print(json.dumps({"held": held, "started": started, "during": during, "locked": locked, "old": seen,
                      "after": after}))
"""


def confined(root: Path, measures: str, attempts: str = "") -> dict[str, Any]:
    make_card(root, "nvidia0", "nvidia-modeset")
    command = [sys.executable, "-c", textwrap.dedent(ATTEMPTS), str(root), measures, attempts]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if sys.platform != "linux":
        pytest.skip("the measures are Linux's")
    result = confined(tmp_path_factory.mktemp("root"), "network,files,calls")
    if not {"files", "calls"} <= set(result["held"]):
        pytest.skip("this machine has no Landlock or filters no calls")
    return result


def test_a_driver_s_calls_are_admitted(outcomes: dict[str, Any]) -> None:
    assert set(outcomes["started"].values()) == {"done"}, outcomes["started"]


def test_nothing_else_is_while_kernels_run(outcomes: dict[str, Any]) -> None:
    assert len(outcomes["during"]) == 25
    for attempt, outcome in outcomes["during"].items():
        assert outcome in ("PermissionError", "OSError", "FileNotFoundError"), attempt
    refused = {name for name, outcome in outcomes["during"].items() if outcome == "PermissionError"}
    assert set(outcomes["during"]) - refused <= {"a system's node", "socket's file"}


def test_the_last_locks_hold_for_every_thread_before_a_request_is_read(outcomes: dict[str, Any]) -> None:
    assert outcomes["locked"]
    for found in (outcomes["old"], outcomes["after"]):
        assert {found[name] for name in DRIVER_CALLS} == {"PermissionError"}
    for name in ("thread's name", "another thread's", "nvidiactl", "nvidia-uvm", "nvidia0"):
        assert outcomes["after"][name] == "done", name


@pytest.mark.parametrize(
    ("measure", "attempts"), [("files", "shadow,another node,a new device"), ("calls", "fork,internet,connect")]
)
def test_each_measure_alone_admits_the_driver_and_refuses_its_own(measure: str, attempts: str, tmp_path: Path) -> None:
    found = confined(tmp_path, measure, attempts)
    if measure not in found["held"]:
        pytest.skip(f"this machine does not offer {measure}")
    assert set(found["started"].values()) == {"done"}
    assert found["during"] == dict.fromkeys(attempts.split(","), "PermissionError")
