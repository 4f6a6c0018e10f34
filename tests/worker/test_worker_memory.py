"""The pages of an answer that was packed and sent are there for the next one."""

import platform
import subprocess
import sys

import pytest

PACKS = """
import resource
import numpy as np
from gradmarket.compute import machine

def packs():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    parts = [np.ones(900_000, np.float32) for _ in range(5)]
    return len(parts) and resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

machine.retain_freed_memory()
print([packs() for _ in range(4)][-1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries do as they like")
def test_memory_freed_by_a_task_is_reused_by_the_next() -> None:
    done = subprocess.run([sys.executable, "-c", PACKS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100, "pages that were new, of more than 4000"
