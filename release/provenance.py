"""Says where a release comes from (SLSA provenance v1 in an in-toto statement), and checks a release by it."""

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
    """Returns the names of the release's files. Raises Refused for one that is missing or is not the one described."""
    statement = json.loads((folder / STATEMENT).read_text())
    named = {one["name"]: one["digest"]["sha256"] for one in statement["subject"] if "/" not in one["name"]}
    for line in (folder / SUMS).read_text().splitlines():
        digest, _, name = line.partition("  ")
        path = folder / name
        if not path.is_file():
            raise Refused(f"{path} is missing", "take the release whole, or build it: make release")
        if hash_file(path) != digest or named.get(name, digest) != digest:
            raise Refused(f"{path} is not the file that was released", "take it again, or build it: make release")
        named.pop(name, None)
    if named:
        raise Refused(f"{SUMS} has no line for {', '.join(named)}", "take the release whole, or build it: make release")
    return [line.partition("  ")[2] for line in (folder / SUMS).read_text().splitlines()]


def read_changes(changelog: str, version: str) -> str:
    """Returns what is Unreleased, and this version's section. Raises Refused where both are empty."""
    found = [
        section[1].strip()
        for title in ("Unreleased", version)
        for section in re.finditer(rf"^## {re.escape(title)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.S | re.M)
        if section[1].strip()
    ]
    if not found:
        raise Refused(f"CHANGELOG.md has no section of {version}", "write it, or what is Unreleased")
    return "\n\n".join([f"# gradmarket {version}", *found]) + "\n"
