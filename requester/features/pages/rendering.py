"""Renders the service's templates."""

from pathlib import Path
from typing import Final

from gradmarket.network.environment import path_of
from gradmarket.pages.rendering import Templates

_TEMPLATES: Final = Templates(Path(__file__).parent / "templates")


def render_template(address: str, template: str, /, **values: object) -> str:
    """Returns a page or a part of one, with links that keep the path in the service's `address`."""
    return _TEMPLATES.render(template, base=path_of(address), **values)
