"""The attacks use what serves a market in tests/ops, and the hostile market of tests/worker."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / room) for room in ("ops", "worker")]
