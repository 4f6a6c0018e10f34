"""A folder's files by name: the file name is the name in the job; nothing else is importable."""

import importlib
import importlib.util
import pkgutil
from functools import cache
from types import ModuleType

from gradmarket.market.errors import Refused


@cache
def names(package: str) -> tuple[str, ...]:
    """The public plug-ins of `package` (a dotted name of our own source), sorted; none of them is imported.

    A folder is looked into once: strangers' manifests ask a hundred thousand times.
    """
    specification = importlib.util.find_spec(package)
    if specification is None or specification.submodule_search_locations is None:
        raise Refused(f"{package} is not a folder of plug-ins")
    found = pkgutil.iter_modules(specification.submodule_search_locations)
    return tuple(sorted(module.name for module in found if not module.name.startswith("_") and not module.ispkg))


def load(package: str, name: str) -> ModuleType:
    """The plug-in called `name`, which may come from a stranger: only a name that `names` lists is ever imported."""
    known = names(package)
    if name not in known:
        raise Refused(f"no {name[:80]!r} here; there is {', '.join(known)}")
    return importlib.import_module(f"{package}.{name}")
