"""Names each top-level room `gradmarket.<room>` in the wheel; everything else stands in pyproject.toml."""

from setuptools import find_packages, setup

ROOMS = ("compute", "contracts", "market", "migrations", "requester", "runner", "worker")
DATA = ["*.json", "artifacts/*.json", "*.mako", "*.html", "*.css", "*.js", "*.pyi", "py.typed"]
DATA += ["assets/*", "assets/noble/*", "assets/licenses/*", "templates/*"]


def packages() -> list[str]:
    found = ["gradmarket", *(f"gradmarket.{name}" for name in find_packages("gradmarket"))]
    for room in ROOMS:
        found.append(f"gradmarket.{room}")
        found += [f"gradmarket.{room}.{name}" for name in find_packages(room, exclude=["node_modules*", "test*"])]
    return found


setup(
    packages=packages(),
    package_dir={"gradmarket": "gradmarket"} | {f"gradmarket.{room}": room for room in ROOMS},
    package_data={"": DATA},
    exclude_package_data={"": ["node_modules/*"]},
)
