"""How well the contract's tests notice faults: `python -m mutation.score --mutants 200 --seed 1`.

Each of a seeded sample of small faults (mutants.py) is put into a copy of the sources, and forge's tests run on it.
A fault that no test notices survives; the score is the share that did not. Faults that do not compile do not count.
Survivors that are explained stand in test/survivors.json: they change nothing that anyone could see.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from contracts import toolchain
from mutation.mutants import Mutant, sample

EXPLAINED: Final = toolchain.HERE / "test" / "survivors.json"
_TIMEOUT_S: Final = 300
_UNITS: Final = ("--no-match-path", "test/invariants/*", "--no-match-contract", "GasTest")
_INVARIANTS: Final = ("--match-path", "test/invariants/*")
_QUICK: Final = {"FOUNDRY_FUZZ_RUNS": "100", "FOUNDRY_INVARIANT_RUNS": "40", "FOUNDRY_OPTIMIZER": "false"}
"""Fewer runs, and no optimizer, which takes longer than the tests; gas does not matter here."""


class MutantFate(StrEnum):
    KILLED = "killed"
    SURVIVED = "survived"
    INVALID = "does not compile"


@dataclass(frozen=True, slots=True)
class Workshop:
    """A copy of the sources and tests, for putting faults into it."""

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "Workshop":
        for name in ("src", "test", "solcjs"):
            shutil.copytree(toolchain.HERE / name, folder / name)
        shutil.copy(toolchain.HERE / "foundry.toml", folder)
        os.symlink(toolchain.HERE / "node_modules", folder / "node_modules")
        return cls(folder)

    def fate(self, mutant: Mutant) -> MutantFate:
        """Tests the sources with the fault and returns the result; restores the source."""
        path = self.folder / mutant.path
        source = path.read_text(encoding="utf-8")
        path.write_text(mutant.apply(source), encoding="utf-8")
        try:
            return self._tested()
        finally:
            path.write_text(source, encoding="utf-8")

    def passes(self) -> bool:
        """Returns whether the tests pass on the sources as they are."""
        return self._tested() is MutantFate.SURVIVED

    def _tested(self) -> MutantFate:
        fate = self._forge(*_UNITS)
        return self._forge(*_INVARIANTS) if fate is MutantFate.SURVIVED else fate

    def _forge(self, *chosen: str) -> MutantFate:
        command = [str(toolchain.locate_tool("forge")), "test", "--fail-fast", "--gas-snapshot-emit", "false", *chosen]
        environment = toolchain.build_node_environment() | _QUICK
        try:
            result = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return MutantFate.KILLED
        if b"Compiler run failed" in result.stdout + result.stderr:
            return MutantFate.INVALID
        return MutantFate.KILLED if result.returncode else MutantFate.SURVIVED


def sources() -> dict[str, str]:
    """Returns the files to mutate, by path: all of the market except its interfaces."""
    files = [*toolchain.HERE.glob("src/*.sol"), *toolchain.HERE.glob("src/libraries/*.sol")]
    chosen = (path for path in files if path.name != "GradToken.sol")
    return {str(path.relative_to(toolchain.HERE)): path.read_text(encoding="utf-8") for path in chosen}


def explanations() -> Mapping[str, str]:
    """Returns why surviving mutants are no faults, by `file: before -> after`."""
    known: dict[str, str] = json.loads(EXPLAINED.read_text(encoding="utf-8"))
    return known


def name(mutant: Mutant) -> str:
    """Returns the mutant's name; it has no line number, so that it survives edits elsewhere in the file."""
    return f"{Path(mutant.path).name}: {mutant.before.strip()} -> {mutant.after.strip()}"


def judged(workshop: Workshop, mutants: Sequence[Mutant], wanted: int) -> Iterator[tuple[Mutant, MutantFate]]:
    """Yields mutants with their fates, until `wanted` of them have compiled."""
    count = 0
    for mutant in mutants:
        if count == wanted:
            return
        fate = workshop.fate(mutant)
        count += fate is not MutantFate.INVALID
        yield mutant, fate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="place in the sample to begin at: a long run cut in parts")
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder:
        workshop = Workshop.at(Path(folder))
        if not workshop.passes():
            sys.exit("the tests fail without any fault")
        fates = []
        for mutant, fate in judged(workshop, sample(sources(), chosen.seed)[chosen.skip :], chosen.mutants):
            print(f"{fate}: {mutant}", flush=True)
            fates.append((mutant, fate))
    print(json.dumps(report(fates, explanations())))


def report(fates: Sequence[tuple[Mutant, MutantFate]], known: Mapping[str, str]) -> dict[str, object]:
    """Returns the mutation score: `value` leaves explained survivors out, `raw` counts them as not noticed."""
    killed = sum(fate is MutantFate.KILLED for _, fate in fates)
    survivors = [mutant for mutant, fate in fates if fate is MutantFate.SURVIVED]
    unexplained = [str(mutant) for mutant in survivors if name(mutant) not in known]
    counted = killed + len(unexplained)
    return {
        "name": "contract.mutation_score",
        "value": round(killed / counted, 4) if counted else 0.0,
        "unit": "share",
        "raw": round(killed / (killed + len(survivors)), 4) if killed + len(survivors) else 0.0,
        "mutants": killed + len(survivors),
        "unexplained": unexplained,
    }


if __name__ == "__main__":
    main()
