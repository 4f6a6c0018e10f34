"""Builds wheel and sdist of a commit: the same bytes from the same commit and setuptools, wherever and whenever.

setuptools takes the wheel's times from SOURCE_DATE_EPOCH, here the commit's; an sdist it writes with the clock's, the
user's name and the file system's order, so that one is packed again.
"""

import gzip
import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gradmarket.market.errors import Refused

ROOT: Final = Path(__file__).resolve().parents[1]
BUILD: Final = (
    "import os, sys; os.umask(0o022); to = sys.argv[1]; "
    "from setuptools import build_meta; build_meta.build_wheel(to); build_meta.build_sdist(to)"
)


@dataclass(frozen=True)
class Commit:
    """`epoch` is its time in Unix seconds."""

    digest: str
    epoch: int


def read_commit(root: Path = ROOT) -> Commit:
    digest, epoch = _run_git(root, "log", "-1", "--format=%H %ct").decode().split()
    return Commit(digest, int(epoch))


def list_uncommitted(root: Path = ROOT) -> list[str]:
    """Returns the tracked files that differ from the commit: the build leaves their changes out."""
    return [line[3:] for line in _run_git(root, "status", "--porcelain", "-uno").decode().splitlines()]


def build_packages(folder: Path, commit: Commit, root: Path = ROOT) -> list[Path]:
    """Builds into `folder`, without the network; returns wheel and sdist."""
    source, built = folder / "source", folder / "packages"
    extract_commit(source, commit, root)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit.epoch), "PYTHONHASHSEED": "0"}
    built.mkdir()
    command = [sys.executable, "-c", BUILD, str(built)]
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True)
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    sdist.write_bytes(pack_again(sdist.read_bytes(), commit.epoch))
    return [wheel, sdist]


def extract_commit(target: Path, commit: Commit, root: Path) -> None:
    """Writes the commit's files, with the same permissions under any umask."""
    packed = _run_git(root, "archive", "--format=tar", commit.digest)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(target, filter="data")
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def pack_again(packed: bytes, epoch: int) -> bytes:
    """Returns the files of a .tar.gz in the order of their names, without owners, and of one time."""
    written = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(packed)) as old,
        gzip.GzipFile(fileobj=written, mode="wb", mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            plain = tarfile.TarInfo(member.name)
            plain.size, plain.type, plain.mtime = member.size, member.type, epoch
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)
    return written.getvalue()


def _run_git(root: Path, *arguments: str) -> bytes:
    """Raises Refused where the folder is no checkout, or git does not run."""
    try:
        return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Refused(f"{root} is no checkout that git reads", "build a release from a clone") from error
