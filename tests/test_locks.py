"""The locks pin the requirements of pyproject.toml: exactly, each once, from any index of pip."""

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.source_tree import ROOT

RUNTIME, DEVELOP, CLIENT = "requirements.lock", "requirements-dev.lock", "requirements-client.lock"


def lines(lock: str) -> list[str]:
    return [line for line in (ROOT / lock).read_text().splitlines() if not line.startswith("#")]


def pins(*locks: str) -> dict[str, str]:
    return {
        canonicalize_name(name): version for lock in locks for name, version in (p.split("==") for p in lines(lock))
    }


def load_requirements(group: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = project["dependencies"] if not group else project["optional-dependencies"][group]
    return [want for want in map(Requirement, texts) if want.name != "gradmarket"]


def test_all_is_every_extra_but_that_of_development() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    assert everything.extras == set(extras) - {"all", "dev"}


@pytest.mark.parametrize(
    ("group", "locks"),
    [*((group, (RUNTIME,)) for group in ("", "images", "sdk", "worker", "service", "s3")), ("dev", (RUNTIME, DEVELOP))],
)
def test_every_requirement_is_pinned_within_its_bounds(group: str, locks: tuple[str, ...]) -> None:
    pinned = pins(*locks)
    unmet = [
        str(want)
        for want in load_requirements(group)
        if not want.specifier.contains(pinned.get(canonicalize_name(want.name), ""))
    ]
    assert unmet == []


def test_every_line_is_an_exact_pin_and_none_occurs_twice() -> None:
    both = lines(RUNTIME) + lines(DEVELOP) + lines(CLIENT)
    names = [canonicalize_name(Requirement(line).name) for line in both]
    assert len(set(names)) == len(names)
    assert all(line.count("==") == 1 and Requirement(line).url is None for line in both)


def test_torch_is_pinned_without_a_build() -> None:
    assert "+" not in pins(RUNTIME)["torch"]
