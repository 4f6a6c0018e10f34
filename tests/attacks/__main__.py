"""`make attacks`: plays every attack on one served market and prints expected and observed outcomes.

`--json` writes a list of {attack, expected, observed, ok, seconds, figures}; `--only` takes the families or words of
the names that are played. The exit code is 1 where any attack is not as expected.
"""

import argparse
import json
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from tests.attacks.families import all_played
from tests.attacks.registry import ATTACKS, Attack, Result
from tests.attacks.scene import staged


def main() -> int:
    given = _given()
    wanted = [made for made in ATTACKS if _wanted(made, given.only)]
    results: list[Result] = []
    began = time.monotonic()
    with staged() as scene:
        for made, result in all_played(scene, wanted):
            results.append(result)
            print(row(made, result), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps([result.json for result in results], indent=1) + "\n")
    bad = sum(not result.ok for result in results)
    print(f"{len(results)} attacks, {len(results) - bad} as expected, {bad} not, in {time.monotonic() - began:.0f} s")
    return 1 if bad or not results else 0


def row(made: Attack, result: Result) -> str:
    """The attack and its line; the expected outcome; the observed one where it differs; measurements."""
    head = f"{'ok ' if result.ok else 'NOT'}  {made.line}: {made.name} ({result.seconds:.1f} s)"
    words = [head, f"     expected  {result.expected}"]
    same = "the same" if result.ok else textwrap.shorten(result.observed, 600)
    figures = [f"     measured  {name} {figure:.3g}" for name, figure in result.figures.items()]
    return "\n".join([*words, f"     observed  {same}", *figures])


def _wanted(made: Attack, words: Sequence[str]) -> bool:
    return not words or any(word == made.family or word in made.name or word == made.line for word in words)


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make attacks", description="Attacks against a running market.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
