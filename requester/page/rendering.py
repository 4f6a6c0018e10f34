"""Renders the service's templates."""

from pathlib import Path
from typing import Final

from gradmarket.pages.rendering import Templates

render: Final = Templates(Path(__file__).parent / "templates").render
