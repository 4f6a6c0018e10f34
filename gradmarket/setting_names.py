"""Names of the environment that are nearly those of settings: a misspelt one changes nothing."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from gradmarket.endpoint import DATA, TOKEN, URL
from requester.settings import OF_COMPOSE, RequesterSettings
from worker.settings import OF_COMPOSE as OF_WORKER
from worker.settings import WorkerSettings

NEARLY: Final = 0.85
"""The least similarity of a variable's name to a setting's for which that is suggested (difflib's ratio)."""


def list_setting_names() -> frozenset[str]:
    """Returns the names that the service, a worker or any command reads."""
    kinds = (RequesterSettings, WorkerSettings)
    names = (f"{kind.model_config['env_prefix']}{name}".upper() for kind in kinds for name in kind.model_fields)
    return frozenset((*names, URL, TOKEN, DATA))


def find_misspelt_settings(names: Iterable[str]) -> Iterator[str]:
    """Yields a sentence for each of the environment's names that is nearly a setting's, and none."""
    known = list_setting_names()
    for name in sorted(set(map(str.upper, names)) - known - OF_COMPOSE - OF_WORKER):
        near = get_close_matches(name, known, 1, NEARLY) if name.startswith("GRADMARKET_") else ()
        if near:
            yield f"{name} is no setting, and changes nothing: set {near[0]}, or unset it"
