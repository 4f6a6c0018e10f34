"""Loads a folder's files by name: the file name is the name in the job, and nothing else can be imported."""

import importlib
import importlib.util
import pkgutil
from difflib import get_close_matches
from functools import cache
from types import ModuleType

from graphdoc.errors import Refused


@cache
def list_plugin_names(package: str) -> tuple[str, ...]:
    """Returns the sorted names of the public plug-ins of `package`, without importing them.

    `package` is a dotted name of our own source. The result is cached, since a stranger's manifest may look up names a
    hundred thousand times. Raises Refused where `package` is not a folder of plug-ins.
    """
    specification = importlib.util.find_spec(package)
    if specification is None or specification.submodule_search_locations is None:
        raise Refused(f"{package} is not a folder of plug-ins")
    modules = pkgutil.iter_modules(specification.submodule_search_locations)
    return tuple(sorted(module.name for module in modules if not module.name.startswith("_") and not module.ispkg))


def load_plugin(package: str, name: str) -> ModuleType:
    """Imports and returns the plug-in called `name`, which may come from a stranger.

    Only a name that `list_plugin_names` lists is imported. Raises Refused for any other.
    """
    known = list_plugin_names(package)
    if name not in known:
        near = get_close_matches(name[:80], known, 1)
        meant = f"did you mean {near[0]!r}? There" if near else "there"
        raise Refused(f"no {name[:80]!r} here; {meant} is {', '.join(known)}", "name one of them")
    return importlib.import_module(f"{package}.{name}")
