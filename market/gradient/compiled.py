"""Compiles a loop over arrays. What it computes is IEEE 754 operations one by one: no fast math, nothing is fused.

A compiled loop releases the interpreter while it runs. Numba keeps machine code by the file that a loop stands in, and
would go on with the old code of another file that it calls: a loop calls loops of its own file alone. The child that
computes a stranger's model imports none of this.
"""

from typing import Any

from numba import njit


def compiled(loop: Any) -> Any:
    """Returns the loop as machine code, kept on disk where the package or a cache folder can be written."""
    try:
        return njit(cache=True, nogil=True, error_model="numpy")(loop)
    except RuntimeError:  # numba's answer where it finds no folder for its cache
        return njit(nogil=True, error_model="numpy")(loop)
