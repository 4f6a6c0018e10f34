"""A task traced operation by operation, in a confined child (runner.features.disputes.traced).

Names of the inputs of a tracing child beside a task's state. No torch.
"""

from typing import Final

ROWS: Final = "dispute:rows"
INPUT: Final = "dispute:input:"
"""Before the number of a value that an operation reads."""
HASH_BYTES: Final = 32
