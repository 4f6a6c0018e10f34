"""States a release's origin (SLSA provenance v1 in an in-toto statement), and checks a release by it."""

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from gradmarket.market.errors import Refused
from release.packages import ROOT, Commit

STATEMENT: Final = "provenance.json"
SUMS: Final = "SHA256SUMS"
LOCKS: Final = ("requirements.lock", "requirements-dev.lock", "requirements-client.lock")


def hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_statement(files: Iterable[Path], commit: Commit, images: Mapping[str, str], root: Path = ROOT) -> Any:
    """Returns the statement; `images` are container images and their ids. It has no signature and no clock in it."""
    subjects = [{"name": path.name, "digest": {"sha256": hash_file(path)}} for path in files]
    subjects += [{"name": name, "digest": {"sha256": digest}} for name, digest in images.items()]
    locks = [{"name": name, "digest": {"sha256": hash_file(root / name)}} for name in LOCKS]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:gradmarket:make-release:1",
                "externalParameters": {"commit": commit.digest, "version": metadata.version("gradmarket")},
                "internalParameters": {
                    "SOURCE_DATE_EPOCH": commit.epoch,
                    "python": platform.python_version(),
                    "setuptools": metadata.version("setuptools"),
                },
                "resolvedDependencies": [{"name": "gradmarket", "digest": {"gitCommit": commit.digest}}, *locks],
            },
            "runDetails": {"builder": {"id": "urn:gradmarket:checkout"}},
        },
    }


def write_provenance(folder: Path, files: list[Path], commit: Commit, images: Mapping[str, str]) -> None:
    """Writes the statement, and the sums of all files with it, as `sha256sum --check` reads them."""
    statement = folder / STATEMENT
    statement.write_text(json.dumps(build_statement(files, commit, images), indent=1, sort_keys=True) + "\n")
    sums = "".join(f"{hash_file(path)}  {path.name}\n" for path in [*files, statement])
    (folder / SUMS).write_text(sums)


def check_release(folder: Path) -> list[str]:
    """Returns the names of the release's files.

    Raises Refused for one that is missing, is not the one described, or that nothing describes.
    """
    named, sums = _read_statement(folder / STATEMENT), _read_sums(folder / SUMS)
    for name, digest in sums.items():
        if name not in named and name != STATEMENT:
            raise _refuse(f"{name} is not of this release: {STATEMENT} does not name it")
        if not (folder / name).is_file():
            raise _refuse(f"{folder / name} is missing")
        if hash_file(folder / name) != digest or named.get(name, digest) != digest:
            raise _refuse(f"{folder / name} is not the file that was released")
    if unsummed := {*named, STATEMENT} - {*sums}:
        raise _refuse(f"{SUMS} has no line for {', '.join(sorted(unsummed))}")
    if slipped := {path.name for path in folder.iterdir()} - {*sums, SUMS}:
        raise _refuse(f"{', '.join(sorted(slipped))} is not of this release: {SUMS} has no line for it")
    return list(sums)


def _refuse(what: str) -> Refused:
    return Refused(what, "take the release whole, or build it: make release")


def _read_statement(path: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file that the statement names; images have names with a slash."""
    try:
        subject = json.loads(path.read_text())["subject"]
        return {str(one["name"]): str(one["digest"]["sha256"]) for one in subject if "/" not in one["name"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _refuse(f"{path} is missing or is no statement of a release") from error


def _read_sums(path: Path) -> dict[str, str]:
    try:
        lines = [line.partition("  ") for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise _refuse(f"{path} is missing or is no list of sums") from error
    return {name: digest for digest, _, name in lines}


def check_target(folder: Path) -> None:
    """Raises Refused where writing a release would erase anything but an earlier release."""
    if ROOT.is_relative_to(folder.resolve()):
        raise Refused(f"{folder} has the sources: nothing is written there", "name a folder of its own, as dist")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        check_release(folder)
    except (Refused, OSError) as error:
        raise Refused(
            f"{folder} has other things than a release: nothing is written there", "name a new folder, or empty it"
        ) from error


def read_changes(changelog: str, version: str) -> str:
    """Returns the section Unreleased, and this version's. Raises Refused where both are empty."""
    found = [
        section[1].strip()
        for title in ("Unreleased", version)
        for section in re.finditer(rf"^## {re.escape(title)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.S | re.M)
        if section[1].strip()
    ]
    if not found:
        raise Refused(f"CHANGELOG.md has no section of {version}", "write it, or what is Unreleased")
    return "\n\n".join([f"# gradmarket {version}", *found]) + "\n"
