"""Compiles the contracts and writes artifacts/*.json: `python -m contracts.build_artifacts`.

With the argument `tests` it compiles the contracts' tests in their place, which takes forge half a minute once.

The files depend on the sources and the settings alone, so that a test can compile again and compare.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from contracts import toolchain
from contracts.artifact import FOLDER

NAMES: Final = ("GradMarket", "GradToken")


def main() -> None:
    if sys.argv[1:] == ["tests"]:
        # all that `forge test` runs, into its cache
        command = [str(toolchain.locate_tool("forge")), "test", "--list", "--quiet"]
        subprocess.run(command, cwd=toolchain.HERE, env=toolchain.build_node_environment(), check=True)
        return
    FOLDER.mkdir(exist_ok=True)
    for name, artifact in build_all().items():
        (FOLDER / f"{name}.json").write_text(render_artifact(artifact), encoding="utf-8")


def build_all() -> dict[str, dict[str, Any]]:
    """Compiles src/ without a cache and returns the artifacts; raises CalledProcessError if that fails."""
    with TemporaryDirectory() as folder:
        out = Path(folder)
        places = ["--out", str(out), "--cache-path", str(out / "cache")]
        command = [str(toolchain.locate_tool("forge")), "build", "src", "--quiet", *places]
        subprocess.run(command, cwd=toolchain.HERE, env=toolchain.build_node_environment(), check=True)
        return {name: _build_artifact(Path(folder), name) for name in NAMES}


def _build_artifact(out: Path, name: str) -> dict[str, Any]:
    output = json.loads((out / f"{name}.sol" / f"{name}.json").read_text(encoding="utf-8"))
    sources = {
        path: sha256((toolchain.HERE / path).read_bytes()).hexdigest() for path in sorted(output["metadata"]["sources"])
    }
    return {
        "name": name,
        "abi": output["abi"],
        "bytecode": output["bytecode"]["object"],
        "deployedBytecode": output["deployedBytecode"]["object"],
        "immutableReferences": _sort_references(output["deployedBytecode"]["immutableReferences"]),
        "sources": sources,
        "sources_sha256": sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest(),
        "compiler": _build_compiler_facts(output["metadata"]),
    }


def render_artifact(artifact: Mapping[str, Any]) -> str:
    return json.dumps(artifact, indent=1) + "\n"


def _sort_references(by_id: Mapping[str, list[dict[str, int]]]) -> list[dict[str, int]]:
    """Returns the references ordered by start, since the compiler's ids depend on the other sources."""
    return sorted((reference for group in by_id.values() for reference in group), key=lambda place: place["start"])


def _build_compiler_facts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    settings = metadata["settings"]
    chosen = {key: settings[key] for key in ("evmVersion", "optimizer", "remappings")}
    return {"solc": metadata["compiler"]["version"], "viaIR": bool(settings.get("viaIR")), **chosen}


if __name__ == "__main__":
    main()
