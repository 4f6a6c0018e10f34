"""Compiles a loop over arrays. A compiled loop computes IEEE 754 operations one by one: no fast math, nothing is fused.

A compiled loop releases the interpreter while it runs. Numba keeps machine code by the file that a loop stands in, and
would keep using the old code of another file that it calls: a loop calls loops of its own file alone. Numba is
imported by the first call: most commands, and the child that computes a stranger's model, make none.
"""

from collections import defaultdict
from functools import update_wrapper
from importlib import import_module
from typing import Any, Final

_loops: Final[defaultdict[str, list["_Loop"]]] = defaultdict(list)
"""All loops by their module."""


class _Loop:
    """A loop that is compiled with the others of its file when the first of them is called."""

    def __init__(self, loop: Any) -> None:
        update_wrapper(self, loop)
        self.loop = loop
        self.machine_code: Any = None
        _loops[loop.__module__].append(self)

    def __call__(self, *arguments: Any) -> Any:
        if self.machine_code is None:
            # Puts machine code in each loop's place, where the loops beside it look for it; two threads at once do it
            # twice
            njit, codes = import_module("numba").njit, []
            for each in _loops[self.loop.__module__]:
                try:
                    code = njit(cache=True, nogil=True, error_model="numpy")(each.loop)
                except RuntimeError:  # numba raises it where it finds no folder for its cache
                    code = njit(nogil=True, error_model="numpy")(each.loop)
                codes.append((each, code))
            for each, code in codes:
                each.loop.__globals__[each.loop.__name__] = code
            for each, code in codes:
                each.machine_code = code
        return self.machine_code(*arguments)


def compile_loop(loop: Any) -> Any:
    """Returns the loop as machine code, kept on disk where the package or a cache folder can be written."""
    return _Loop(loop)
