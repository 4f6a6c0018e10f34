"""Random draws, each seeded by its site in the document (the last argument) and the microbatch's seed."""

from typing import Final

from graphdoc.operators.costs import count_transcendental
from graphdoc.operators.entry import Entries, own

ENTRIES: Final[Entries] = {
    "dropout.hash": own("tensor float int -> tensor", count_transcendental, "seed"),
    "dropout.feature": own("tensor float int -> tensor", count_transcendental, "seed"),
    "dropout.alpha": own("tensor float int -> tensor", count_transcendental, "seed"),
    "chance.uniform": own("tensor dtype int -> tensor", count_transcendental, "seed"),
    "chance.normal": own("tensor dtype int -> tensor", count_transcendental, "seed"),
    "chance.bernoulli": own("tensor operand int -> tensor", count_transcendental, "seed"),
}
