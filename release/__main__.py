"""`python -m release` writes a release into a folder; `--check` checks one."""

import shutil
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from containers import images
from containers.engine import found
from contracts.toolchain import ToolMissing
from gradmarket.market.errors import MarketError
from gradmarket.mistakes import print_error
from release.packages import ROOT, build_packages, list_uncommitted, read_commit
from release.provenance import check_release, check_target, read_changes, write_provenance


def main(
    folder: Annotated[Path, typer.Argument(help="Where the release is, or is written.")] = ROOT / "dist",
    sbom: Annotated[Path | None, typer.Option(help="The SBOM that goes with it.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the release that is there.")] = False,
) -> None:
    try:
        names = check_release(folder) if check else write_release(folder, sbom)
    except MarketError as error:
        raise typer.Exit(print_error(error, "make release")) from error
    print("\n".join(str(folder / name) for name in names))


def write_release(folder: Path, sbom: Path | None) -> list[str]:
    """Writes wheel, sdist, changes, SBOM and their provenance; builds the images where a container engine is there."""
    check_target(folder)
    folder = folder.resolve()
    commit, version = read_commit(), metadata.version("gradmarket")
    if left := list_uncommitted():
        print(f"What is not committed is not in it: {', '.join(left)}")
    changes = read_changes((ROOT / "CHANGELOG.md").read_text(), version)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as working, TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
        made = Path(beside) / folder.name
        made.mkdir()
        files = [Path(shutil.copy(path, made)) for path in build_packages(Path(working), commit)]
        (made / f"CHANGES-{version}.md").write_text(changes)
        files.append(made / f"CHANGES-{version}.md")
        if sbom is not None:
            files.append(Path(shutil.copy(sbom, made)))
        write_provenance(made, files, commit, _build_images())
        names = check_release(made)
        if folder.exists():  # an earlier release, or empty: it goes once the new one is whole
            shutil.rmtree(folder)
        made.rename(folder)
    return names


def _build_images() -> dict[str, str]:
    """Returns the images' ids by name; none where no engine runs here."""
    try:
        engine = found()
    except ToolMissing as error:
        print(f"No images. {error}")
        return {}
    images.build(engine, ROOT)
    named = [f"gradmarket/{target}" for target in images.TARGETS]
    ids = {name: engine("image", "inspect", "--format", "{{.Id}}", name).strip() for name in named}
    return {name: said.removeprefix("sha256:") for name, said in ids.items()}


if __name__ == "__main__":
    typer.run(main)
