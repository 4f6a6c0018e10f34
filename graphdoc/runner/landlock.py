"""Restricts by Landlock (Linux 5.13 and later) the files that a child may open: only those that computing must read.

https://docs.kernel.org/userspace-api/landlock.html. Descriptors that are already open, such as the shared memory, stay
usable.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from graphdoc.runner.admitted import READ_DIRECTORY

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_TELL_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Version -> the number of file rights that it knows; later versions are treated like the last one."""


def restrict_files(allowed: Iterable[tuple[str, int]]) -> bool:
    """Forbids opening any but the allowed paths, each with its rights; see admitted.py.

    Must be called by the only thread, after new privileges are given up. Returns False without Landlock.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, _TELL_VERSION)
    if version < 1:
        return False
    handled = (1 << _RIGHTS[min(version, max(_RIGHTS))]) - 1
    attributes = struct.pack("=Q", handled)
    rules = libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if rules < 0:
        return False
    try:
        for path, rights in allowed:
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:  # this machine does not have it
                continue
            try:
                mine = rights & handled if Path(path).is_dir() else rights & handled & ~READ_DIRECTORY
                libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", mine, descriptor), 0)
            finally:
                os.close(descriptor)
        return bool(libc.syscall(_RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)
