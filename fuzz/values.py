"""Changes to JSON: of its content (fields, types, order), and of its form (tokens that are no JSON)."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any, Final

from fuzz.splices import spliced

NUMBERS: Final = (
    0, 1, -1, 2, 3, 255, 256, 2**31 - 1, 2**31, 2**32, 2**40, 2**40 + 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64,
    10**30, 0.0, -0.0, 0.5, 1.0, 1e-320, 1e39, 1.7e308,
)  # fmt: skip
WORDS: Final = (
    "", "rows", "loss", "data", "param", "float32", "float64", "bfloat16", "inf", "nan", "NaN", "tanh", "cuda", "v",
    "f", "../x", "/etc/passwd", "__class__", "__metadata__", "os.system", "torch.ops.aten.add.Tensor", "relu_.default",
    "__import__('os').abort()", "Symbol('x').__class__", "exec('1/0')", "s0*2**1000000", "a,b->", "...", "a" * 5000,
    "\0", "\n", "\u202e", "\ud800", "\ufeff", "é", "1", "1" * 90, "blake3:" + "0" * 64, "2026-01-01T00:00:00Z",
)  # fmt: skip
TOKENS: Final = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"9" * 400, b"9" * 5000, b"0x10", b"01", b"1.", b".5",
    b"+1", b"1e", b"-0", b"1E5", b"null", b"true", b"False", b"[" * 3000, b"[" * 900 + b"]" * 900, b'{"a":' * 3000,
    b'"\\ud800"', b'"\\u0000"', b"'x'", b'"\xff"', b"{}", b"[]", b"[[]]", b"1,1", b"//", b"",
)  # fmt: skip
_LITERAL: Final = re.compile(rb'-?[0-9][0-9.eE+-]*|"[^"\\]*"|true|false|null')
_FIRST_KEY: Final = re.compile(rb'\{("[^"\\]*":(?:-?[0-9.]+|"[^"\\]*"|true|false|null)),')


def junk(chance: Random, depth: int = 0) -> Any:
    """Any value; deep or long ones rarely."""
    draw = chance.random()
    if draw < 0.3:
        return chance.choice(NUMBERS)
    if draw < 0.6:
        return chance.choice(WORDS)
    if draw < 0.75 or depth > 3:
        return chance.choice((None, True, False, [], {}))
    if draw < 0.77:
        return _nested(chance.choice((5, 50, 400)), chance)
    parts = [junk(chance, depth + 1) for _ in range(chance.randrange(4))]
    if draw < 0.9:
        return parts * chance.choice((1, 1, 1, 1, 5000 if depth == 0 else 1))
    return {str(chance.choice(WORDS)): part for part in parts}


def _nested(depth: int, chance: Random) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value] if chance.random() < 0.8 else {"v": value}
    return value


def changed(value: Any, chance: Random) -> Any:
    """`value`, changed in place once or up to four times."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        parents = _descent(value, chance)
        if parents:
            container, key = chance.choice(parents[-3:])
            _CHANGES[chance.randrange(len(_CHANGES))](container, key, chance)
    return value


def _descent(value: Any, chance: Random) -> list[tuple[Any, Any]]:
    """A way down to a leaf, as (container, key)."""
    found = []
    while isinstance(value, dict | list) and value:
        key = chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
        found.append((value, key))
        value = value[key]
    return found


def _replace(container: Any, key: Any, chance: Random) -> None:
    container[key] = junk(chance)


def _nudge(container: Any, key: Any, chance: Random) -> None:
    if type(container[key]) in (int, float):
        container[key] += chance.choice((-1, 1, 2**16, 2**40, 0.5))
    elif type(container[key]) is str:
        container[key] += chance.choice(WORDS)[:60]


def _delete(container: Any, key: Any, chance: Random) -> None:
    del container[key]


def _rename(container: Any, key: Any, chance: Random) -> None:
    if isinstance(container, dict):
        container[str(chance.choice(WORDS))] = container.pop(key)
    else:
        container.append(container.pop(key))


def _double(container: Any, key: Any, chance: Random) -> None:
    if isinstance(container, list):
        container.insert(chance.randrange(len(container)), container[key])
    else:
        container[f"{key}{chance.randrange(3)}"] = container[key]


def _swap(container: Any, key: Any, chance: Random) -> None:
    other = chance.choice(list(container)) if isinstance(container, dict) else chance.randrange(len(container))
    container[key], container[other] = container[other], container[key]


def _wrap(container: Any, key: Any, chance: Random) -> None:
    container[key] = [container[key]] if chance.random() < 0.5 else {"v": container[key]}


def _borrow(container: Any, key: Any, chance: Random) -> None:
    """The sibling's value, so that types fit and places do not."""
    other = chance.choice(list(container)) if isinstance(container, dict) else chance.randrange(len(container))
    container[key] = container[other]


_CHANGES: Final[tuple[Callable[[Any, Any, Random], None], ...]] = (
    _replace, _replace, _nudge, _nudge, _delete, _rename, _double, _swap, _wrap, _borrow,
)  # fmt: skip


def dumped(value: Any) -> bytes:
    """Canonical JSON; half a surrogate, which has no bytes, is written as an escape."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode() if text.isascii() else text.encode(errors="backslashreplace")


def misspelt(data: bytes, chance: Random) -> bytes:
    """JSON whose text is changed: another token, a key twice, spaces, another encoding, or any bytes."""
    draw = chance.random()
    if draw < 0.5:
        found = chance.choice(list(_LITERAL.finditer(data)) or [None])
        return data if found is None else data[: found.start()] + chance.choice(TOKENS) + data[found.end() :]
    if draw < 0.6:
        return _FIRST_KEY.sub(rb"{\1,\1,", data, count=1)
    if draw < 0.65:
        return data.decode(errors="replace").encode(chance.choice(("utf-16", "utf-32", "utf-8-sig")))
    if draw < 0.7:
        return data.replace(b",", b", ", chance.choice((1, -1)))
    return spliced(data, chance)
