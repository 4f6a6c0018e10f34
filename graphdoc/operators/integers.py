"""Integer arithmetic of sizes, such as `x.shape[1] // 2`."""

from typing import Final

from graphdoc.operators.costs import free
from graphdoc.operators.entry import Entries, own

ENTRIES: Final[Entries] = {
    "integer.size": own("tensor int -> int", free),
    "integer.add": own("int int -> int", free),
    "integer.sub": own("int int -> int", free),
    "integer.mul": own("int int -> int", free),
    "integer.floordiv": own("int int -> int", free),
    "integer.mod": own("int int -> int", free),
    "integer.neg": own("int -> int", free),
    "integer.max": own("int int -> int", free),
    "integer.min": own("int int -> int", free),
}
