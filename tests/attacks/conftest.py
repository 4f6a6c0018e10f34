"""The attacks use what serves a market in tests/ops, and what others make hostile markets and sketches with."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / room) for room in ("ops", "worker", "requester")]
