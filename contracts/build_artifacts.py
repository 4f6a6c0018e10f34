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
        artifacts = {}
        for name in NAMES:
            output = json.loads((out / f"{name}.sol" / f"{name}.json").read_text(encoding="utf-8"))
            metadata, code = output["metadata"], output["deployedBytecode"]
            settings, paths = metadata["settings"], sorted(metadata["sources"])
            sources = {path: sha256((toolchain.HERE / path).read_bytes()).hexdigest() for path in paths}
            references = (reference for group in code["immutableReferences"].values() for reference in group)
            artifacts[name] = {
                "name": name,
                "abi": output["abi"],
                "bytecode": output["bytecode"]["object"],
                "deployedBytecode": code["object"],
                # by start, since the compiler's ids depend on the other sources
                "immutableReferences": sorted(references, key=lambda place: place["start"]),
                "sources": sources,
                "sources_sha256": sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest(),
                "compiler": {
                    "solc": metadata["compiler"]["version"],
                    "viaIR": bool(settings.get("viaIR")),
                    **{key: settings[key] for key in ("evmVersion", "optimizer", "remappings")},
                },
            }
        return artifacts


def render_artifact(artifact: Mapping[str, Any]) -> str:
    return json.dumps(artifact, indent=1) + "\n"


if __name__ == "__main__":
    main()
