"""A release has the same bytes from one commit each time, matches its provenance, and installs in one line."""

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from gradmarket.market.errors import Refused
from release.packages import ROOT, Commit, build_packages, pack_again, read_commit
from release.provenance import check_release, check_target, hash_file, read_changes, write_provenance
from tests.lanes import FULL
from tests.source_tree import PACKAGES

COMMIT = Commit("a" * 40, 1_700_000_000)
NOT_INSTALLED = ("contracts/src/", "contracts/test/", "contracts/snapshots/", "contracts/solcjs/")
DATA = (".py", ".json", ".mako", ".html", ".css", ".js")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build_packages(tmp_path_factory.mktemp("one"), read_commit())


@FULL
def test_two_builds_of_a_commit_are_equal_in_every_byte(built: list[Path], tmp_path: Path) -> None:
    again = build_packages(tmp_path, read_commit())
    assert [path.name for path in again] == [path.name for path in built]
    assert [hash_file(path) for path in again] == [hash_file(path) for path in built]


@FULL
def test_the_wheel_installs_in_one_line_and_prints_its_version(built: list[Path], tmp_path: Path) -> None:
    """Its dependencies are installed already, so it needs no network."""
    wheel, sdist = built
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--find-links"]
    subprocess.run([*pip, str(wheel.parent), "--target", str(tmp_path), "gradmarket"], check=True)
    asked = [sys.executable, "-m", "gradmarket", "--version"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gradmarket", wheel.name.split("-")[1]]
    with zipfile.ZipFile(wheel) as packed, tarfile.open(sdist) as source:
        inside = {name.partition("/")[2] for name in source.getnames()}
        programs = {name for name in packed.namelist() if not name.startswith("gradmarket-")}
    assert programs - inside == set(), "the sdist builds the same"


@FULL
def test_the_wheel_has_every_program_with_its_data_and_nothing_else(built: list[Path]) -> None:
    wheel, _sdist = built
    source = wheel.parents[1] / "source"
    paths = {str(path.relative_to(source)) for package in PACKAGES for path in (source / package).rglob("*")}
    wanted = {path for path in paths if path.endswith(DATA) and not path.startswith(NOT_INSTALLED)}
    assert "contracts/artifacts/GradMarket.json" in wanted
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert wanted - set(names) == set()
    assert [name for name in names if not name.startswith(("gradmarket-", *(f"{one}/" for one in PACKAGES)))] == []
    assert not any("node_modules" in name or "/test/" in name for name in names)


def released(folder: Path) -> list[Path]:
    files = [folder / name for name in ("gradmarket-0.1.0-py3-none-any.whl", "sbom.json")]
    for path in files:
        path.write_text(path.name)
    write_provenance(folder, files, COMMIT, {"gradmarket/chain": "b" * 64})
    return files


def test_the_provenance_names_files_images_commit_and_time(tmp_path: Path) -> None:
    files = released(tmp_path)
    assert check_release(tmp_path) == [*(path.name for path in files), "provenance.json"]
    said = json.loads((tmp_path / "provenance.json").read_text())
    named = {one["name"]: one["digest"]["sha256"] for one in said["subject"]}
    assert named == {path.name: hash_file(path) for path in files} | {"gradmarket/chain": "b" * 64}
    definition = said["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["commit"] == COMMIT.digest
    assert definition["internalParameters"]["SOURCE_DATE_EPOCH"] == COMMIT.epoch
    assert definition["resolvedDependencies"][1]["digest"]["sha256"] == hash_file(ROOT / "requirements.lock")


def test_changed_missing_or_added_files_of_a_release_are_found(tmp_path: Path) -> None:
    """The cheating twin: somebody hands on a wheel of their own, with sums to match."""
    wheel, sbom = released(tmp_path)
    honest = wheel.read_text()
    wheel.write_text("another program")
    with pytest.raises(Refused, match="not the file that was released"):
        check_release(tmp_path)
    sums = tmp_path / "SHA256SUMS"
    lines = sums.read_text().splitlines()
    sums.write_text("\n".join([f"{hash_file(wheel)}  {wheel.name}", *lines[1:]]) + "\n")
    with pytest.raises(Refused, match="not the file that was released"):
        check_release(tmp_path)
    wheel.write_text(honest)
    sums.write_text("\n".join([lines[0], lines[2]]) + "\n")
    with pytest.raises(Refused, match=f"no line for {sbom.name}"):
        check_release(tmp_path)
    sbom.unlink()
    sums.write_text("\n".join(lines) + "\n")
    with pytest.raises(Refused, match="is missing"):
        check_release(tmp_path)


def test_a_file_or_a_line_that_was_slipped_in_is_found(tmp_path: Path) -> None:
    """`pip install --find-links` takes the newest wheel of a folder: one that nothing describes is refused."""
    wheel, _sbom = released(tmp_path)
    slipped = tmp_path / "gradmarket-9.9.9-py3-none-any.whl"
    slipped.write_text("another program")
    with pytest.raises(Refused, match=f"{slipped.name} is not of this release"):
        check_release(tmp_path)
    sums = tmp_path / "SHA256SUMS"
    whole = sums.read_text()
    sums.write_text(f"{whole}{hash_file(slipped)}  {slipped.name}\n")
    with pytest.raises(Refused, match=f"{slipped.name} is not of this release"):
        check_release(tmp_path)
    slipped.unlink()
    sums.write_text(f"{whole}{hash_file(wheel)}  ../{tmp_path.name}/{wheel.name}\n")
    with pytest.raises(Refused, match="is not of this release"):
        check_release(tmp_path)


@pytest.mark.parametrize("said", [None, "", "[]", '{"subject": [{"name": 1}]}', "\x00"])
def test_a_statement_that_is_missing_or_broken_is_refused(tmp_path: Path, said: str | None) -> None:
    released(tmp_path)
    (tmp_path / "provenance.json").unlink()
    if said is not None:
        (tmp_path / "provenance.json").write_text(said)
    with pytest.raises(Refused, match=r"provenance\.json"):
        check_release(tmp_path)


def test_sums_that_are_missing_are_refused(tmp_path: Path) -> None:
    released(tmp_path)
    (tmp_path / "SHA256SUMS").unlink()
    with pytest.raises(Refused, match="SHA256SUMS"):
        check_release(tmp_path)


def test_a_release_replaces_nothing_but_a_release(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    check_target(mine)
    check_target(tmp_path / "new")
    released(mine)
    check_target(mine)
    for folder in (tmp_path, ROOT, ROOT.parent, ROOT / ".." / ROOT.name, Path("/"), Path(__file__)):
        with pytest.raises(Refused, match="nothing is written there"):
            check_target(folder)
    (mine / "thesis.tex").write_text("years")
    with pytest.raises(Refused, match="nothing is written there"):
        check_target(mine)
    assert (mine / "thesis.tex").read_text() == "years"


def test_an_archive_packed_again_has_the_same_bytes_from_any_packer(tmp_path: Path) -> None:
    packed = []
    for name, mode, order in (("one", 0o664, "ab"), ("two", 0o600, "ba")):
        folder = tmp_path / name
        folder.mkdir()
        for letter in order:
            (folder / letter).write_text(letter)
            (folder / letter).chmod(mode)
        with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz") as archive:
            for letter in order:
                archive.add(folder / letter, arcname=f"gradmarket/{letter}")
        packed.append(pack_again((tmp_path / f"{name}.tar.gz").read_bytes(), COMMIT.epoch))
    assert packed[0] == packed[1]
    shutil.rmtree(tmp_path / "one")


def test_a_version_s_changes_are_what_is_unreleased_and_its_section() -> None:
    unreleased = "# Changes\n\n## Unreleased\n\n- new\n\n## 0.0.9\n\n- old\n"
    assert read_changes(unreleased, "0.1.0") == "# gradmarket 0.1.0\n\n- new\n"
    both = "## Unreleased\n\n- new\n\n## 0.1.0 (2026)\n\n- first\n\n## 0.0.9\n\n- old\n"
    assert read_changes(both, "0.1.0") == "# gradmarket 0.1.0\n\n- new\n\n- first\n"
    with pytest.raises(Refused, match=r"no section of 0\.1\.0"):
        read_changes("## Unreleased\n\n## 0.0.9\n\n- old\n", "0.1.0")
    assert "Webhooks" in read_changes((ROOT / "CHANGELOG.md").read_text(), "0.1.0")
