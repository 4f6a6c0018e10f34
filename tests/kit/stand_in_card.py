"""A driver of two cards that are not there, made by the C compiler: it starts by the calls of NVIDIA's.

Measured with strace on an H100 (driver 580): the nodes, one abstract socket, the names of threads. Any that fails ends
cuInit with 304, as there.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

NAMES: Final = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
UUIDS: Final = ("GPU-00010203-0405-0607-0809-0a0b0c0d0e00", "GPU-00010203-0405-0607-0809-0a0b0c0d0e01")
CUDA: Final = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static int cards[2], count;

static int open_node(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/dev/%s", ROOT, name);
    return open(path, O_RDWR | O_CLOEXEC) < 0;
}

static int name_thread(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/comm", syscall(SYS_gettid));
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    return file < 0 || write(file, "cuda-EvtHandlr", 14) != 14;
}

static int open_socket(void) {
    struct sockaddr_un address = {AF_UNIX};
    snprintf(address.sun_path + 1, 64, "cuda-uvmfd-%d", getpid());
    int listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return listening < 0 || bind(listening, (struct sockaddr *)&address, 40) || listen(listening, 16);
}

static int need_more(void) {
#ifdef MORE_PATH
    return open(MORE_PATH, O_RDONLY | O_CLOEXEC) < 0;
#elif defined(MORE_SOCKET)
    return socket(AF_INET, SOCK_STREAM, 0) < 0;
#else
    return 0;
#endif
}

int cuInit(unsigned flags) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (open_node("nvidiactl") || open_node("nvidia-uvm") || open_node("nvidia0") || open_node("nvidia1")) return 304;
    if (open_socket() || name_thread() || need_more()) return 304;
    for (int card = 0; card < 2; card++)
        if (!visible || strchr(visible, '0' + card)) cards[count++] = card;
    return count ? 0 : 100;
}
int cuGetErrorName(int code, const char **text) {
    *text = code == 304 ? "CUDA_ERROR_OPERATING_SYSTEM" : "CUDA_ERROR_NO_DEVICE";
    return 0;
}
int cuGetErrorString(int code, const char **text) {
    *text = code == 304 ? "OS call failed or operation not supported on this OS" : "no CUDA-capable device is detected";
    return 0;
}
int cuDeviceGetCount(int *number) { *number = count; return 0; }
int cuDeviceGet(int *device, int number) { *device = cards[number]; return 0; }
int cuDeviceGetName(char *name, int most, int device) {
    snprintf(name, most, "%s", device ? "NVIDIA H200" : "NVIDIA H100 80GB HBM3");
    return 0;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    for (int at = 0; at < 16; at++) uuid[at] = at;
    uuid[15] = device;
    return 0;
}
int cuDeviceGetAttribute(int *value, int which, int device) { *value = which == 75 ? 9 : 0; return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)(device ? 141 : 80) << 30; return 0; }
"""
MANAGEMENT: Final = r"""
#include <stdio.h>
#include <string.h>

int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned most) { snprintf(text, most, "580.159.04"); return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    char last = uuid[strlen(uuid) - 1];
    *handle = last == '1' ? "1" : "0";
#ifdef INSTANCES
    if (strncmp(uuid, "MIG-", 4)) return 6;
#endif
    return last == '0' || last == '1' ? 0 : 6;
}
int nvmlDeviceGetName(const char *handle, char *name, unsigned most) {
    snprintf(name, most, "%s", handle[0] == '1' ? "NVIDIA H200" : "NVIDIA H100 80GB HBM3");
    return 0;
}
int nvmlDeviceGetUtilizationRates(const char *handle, unsigned *rates) { rates[0] = 93; rates[1] = 40; return 0; }
int nvmlDeviceGetPowerUsage(const char *handle, unsigned *milliwatts) {
    *milliwatts = 612500;
    return handle[0] == '1' ? 3 : 0;
}
int nvmlDeviceGetTemperature(const char *handle, int where, unsigned *degrees) { *degrees = 61; return where; }
int nvmlDeviceGetMemoryInfo(const char *handle, unsigned long long *memory) {
    memory[1] = handle[0] == '1' ? 5ULL << 30 : 70ULL << 30;
    return 0;
}
"""


def make_nodes(root: Path, *more: str) -> Path:
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", *more):
        node = root / "dev" / name
        node.parent.mkdir(parents=True, exist_ok=True)
        node.touch()
    return root


def install_driver(folder: Path, root: Path, *defined: str) -> str:
    """Compiles it with its nodes in `root`; returns the value for LD_LIBRARY_PATH. Skips without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("this machine has no C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    for library, source in (("libcuda.so.1", CUDA), ("libnvidia-ml.so.1", MANAGEMENT)):
        macros = (f'-DROOT="{root}"', *(f"-D{one}" for one in defined))
        command = [compiler, "-shared", "-fPIC", "-xc", *macros, "-", "-o", str(folder / library)]
        subprocess.run(command, input=source, text=True, check=True, capture_output=True)
    return str(folder) + os.pathsep + os.environ.get("LD_LIBRARY_PATH", "")
