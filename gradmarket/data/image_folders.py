"""A folder of pictures with a folder for each class, as torchvision's ImageFolder has it: x and the class's number y.

The manifest keeps the classes' names, so that a number is a name again later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from gradmarket.data.tables import TARGET
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.manifest import CATEGORIES_AT_MOST, Column, Encoding

SUFFIXES: Final = (".png", ".jpg", ".jpeg")
FOLDER: Final = "folder"
"""The column of the manifest's encoding that the classes' names stand under."""
MODES: Final = {"RGB": 3, "L": 1}


@dataclass(frozen=True)
class Images:
    """A dataset of pictures: `folder` has a folder for each class. `size` is (height, width) in pixels, to which each
    is scaled; without it all have one size. `mode` is RGB, or L for shades of grey."""

    folder: str | Path
    size: tuple[int, int] | None = None
    mode: str = "RGB"


@dataclass(frozen=True)
class ImageRows:
    """x uint8[rows, channels, height, width], y int64[rows]."""

    arrays: dict[str, np.ndarray]
    encoding: Encoding


def is_image_folder(path: Path) -> bool:
    """Whether a folder has folders of pictures."""
    return path.is_dir() and any(_list_pictures(folder) for folder in path.iterdir() if folder.is_dir())


def load_image_rows(images: Images) -> ImageRows:
    """Raises NotFound, or Refused for a file that is no picture, for unlike sizes, and where Pillow is missing."""
    if not isinstance(images.folder, str | Path):
        raise Refused(f"Images takes the path of a folder, not a {type(images.folder).__name__}")
    root = Path(images.folder)
    if not root.is_dir():
        raise NotFound(f"there is no folder {root}")
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir() and _list_pictures(folder))
    if not folders:
        raise Refused(f"{root} has no folder with {', '.join(SUFFIXES)} files: put each class's pictures in a folder")
    if len(folders) > CATEGORIES_AT_MOST:
        raise Refused(f"{root} has {len(folders)} classes, more than {CATEGORIES_AT_MOST}")
    listed = [(path, number) for number, folder in enumerate(folders) for path in _list_pictures(folder)]
    x = read_pictures([path for path, _ in listed], images.size, images.mode)
    encoding = Encoding(inputs={TARGET: (FOLDER,)}, categories={FOLDER: tuple(folder.name for folder in folders)})
    return ImageRows({"x": x, TARGET: np.array([number for _, number in listed], np.int64)}, encoding)


def scale_pixels(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns x in float32 from 0 to 1, as torchvision's ToTensor does, for modules of one's own."""
    return {**arrays, "x": arrays["x"].astype(np.float32) / np.float32(255)}


def read_pictures(paths: Sequence[Path], size: tuple[int, int] | None, mode: str) -> np.ndarray:
    """Returns uint8[rows, channels, height, width]; see Images. Raises Refused."""
    if mode not in MODES:
        raise Refused(f"there is no mode {mode!r}: choose one of {', '.join(MODES)}")
    if size is not None and not (
        isinstance(size, tuple | list) and len(size) == 2 and all(isinstance(one, int) and one >= 1 for one in size)
    ):
        raise Refused(f"a size is (height, width) in pixels, such as (32, 32), not {size!r}")
    try:
        library = import_module("PIL.Image")
    except ModuleNotFoundError:
        raise Refused("pictures need Pillow, which is not installed: pip install 'gradmarket[images]'") from None
    rows, first = [], None
    for path in paths:
        try:
            with library.open(path, formats=("PNG", "JPEG")) as opened:
                picture = opened.convert(mode)
        except (OSError, ValueError, SyntaxError, library.DecompressionBombError) as error:
            why = f"{path} cannot be read as a picture: {str(error)[:200]}"
            raise Refused(f"{why}: repair it, or leave it out") from None
        if size is not None and (picture.height, picture.width) != tuple(size):
            picture = picture.resize((size[1], size[0]), library.Resampling.BILINEAR)
        pixels = np.asarray(picture, np.uint8)
        row = pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
        first = first or row.shape
        if row.shape != first:
            sizes = " and ".join(f"{shape[1]} x {shape[2]}" for shape in (first, row.shape))
            raise Refused(
                f"{path}: pictures have unlike sizes ({sizes}): name the size to scale them to, such as (32, 32)"
            )
        rows.append(row)
    return np.stack(rows)


def encode_pictures(source: Any, column: Column) -> np.ndarray:
    """Returns pictures as the training rows of `column` were made: of a file one, of a folder all, sorted by name.

    Raises NotFound, Refused.
    """
    if not isinstance(source, str | Path):
        raise Refused("the model was trained on pictures: encode takes the path of a picture, or of a folder of them")
    path = Path(source)
    if not path.exists():
        raise NotFound(f"there is no {path}")
    paths = _list_pictures(path) if path.is_dir() else [path]
    if not paths:
        raise Refused(f"{path} has no {', '.join(SUFFIXES)} files")
    channels, height, width = column.shape
    mode = next(name for name, count in MODES.items() if count == channels)
    x = read_pictures(paths, (height, width), mode)
    return x if column.dtype == "uint8" else scale_pixels({"x": x})["x"]


def _list_pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
