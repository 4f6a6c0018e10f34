"""Integer arithmetic of sizes, such as `x.shape[1] // 2`."""

from typing import Final

from graphdoc.operators.costs import count_free
from graphdoc.operators.entry import Entries, own

ENTRIES: Final[Entries] = {
    "integer.size": own("tensor int -> int", count_free),
    "integer.add": own("int int -> int", count_free),
    "integer.sub": own("int int -> int", count_free),
    "integer.mul": own("int int -> int", count_free),
    "integer.floordiv": own("int int -> int", count_free),
    "integer.mod": own("int int -> int", count_free),
    "integer.neg": own("int -> int", count_free),
    "integer.max": own("int int -> int", count_free),
    "integer.min": own("int int -> int", count_free),
}
