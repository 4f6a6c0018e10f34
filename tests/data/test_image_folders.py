"""Folders of pictures, a class each; against Pillow's and torchvision's way of reading; and the mistakes in them."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.data.image_folders import Images, encode_pictures, load_image_rows
from gradmarket.data.pack import Cut, pack_dataset
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.manifest import Labelled, parse_manifest
from gradmarket.sdk.rows import load_rows, load_validation

Pixels = np.ndarray[Any, Any]


def drawn(seed: int, size: tuple[int, int] = (4, 6)) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of two pictures of 4 x 6 pixels, and a file that is none of them."""
    root = tmp_path / "pictures"
    for number, name in enumerate(["dogs/a.png", "dogs/b.PNG", "cats/c.png", "cats/d.jpg"]):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawn(number)).save(path)
    (root / "readme.txt").write_text("no class")
    (root / "empty").mkdir()
    return root


def test_a_folder_for_each_class_becomes_rows_in_the_order_of_names(folder: Path) -> None:
    rows = load_image_rows(Images(folder))
    assert rows.arrays["x"].shape == (4, 3, 4, 6)
    assert rows.arrays["x"].dtype == np.uint8
    assert rows.arrays["y"].tolist() == [0, 0, 1, 1]
    assert (rows.arrays["x"][2] == drawn(0).transpose(2, 0, 1)).all(), "PNG keeps every pixel"
    with Image.open(folder / "cats" / "d.jpg") as picture:
        assert (rows.arrays["x"][1].transpose(1, 2, 0) == np.asarray(picture)).all()
    packed = pack_dataset(rows.arrays, Cut(2), rows.encoding)
    manifest = parse_manifest(packed.body)
    assert manifest.labelled == Labelled(dtype="uint8", shape=(3, 4, 6), classes=2)
    assert manifest.encoding is not None
    assert manifest.encoding.categories == {"folder": ("cats", "dogs")}


def test_a_module_gets_numbers_from_0_to_1_and_later_pictures_alike(folder: Path) -> None:
    rows = load_rows(folder)
    assert rows.arrays["x"].dtype == np.float32
    assert (rows.arrays["x"] == load_image_rows(Images(folder)).arrays["x"] / np.float32(255)).all()
    manifest = pack_dataset(rows.arrays, Cut(2), rows.encoding).manifest
    later = encode_pictures(folder / "dogs", manifest.inputs["x"])
    assert (later == rows.arrays["x"][2:]).all()
    assert (encode_pictures(folder / "dogs" / "b.PNG", manifest.inputs["x"]) == later[1:]).all()
    assert set(load_validation(folder, None, rows)) == {"x", "y"}
    grey = load_rows(Images(folder, mode="L"))
    with pytest.raises(
        Refused, match=r"validation: x is float32\[1, 4, 6\] a row, and training has float32\[3, 4, 6\]"
    ):
        load_validation(Images(folder, mode="L"), None, rows)
    assert grey.arrays["x"].shape == (4, 1, 4, 6)


def test_pictures_of_unlike_sizes_are_scaled_to_the_one_that_is_named(folder: Path) -> None:
    Image.fromarray(drawn(9, (8, 8))).save(folder / "dogs" / "e.png")
    with pytest.raises(Refused, match=r"e\.png: pictures have unlike sizes \(4 x 6 and 8 x 8\): name the size"):
        load_image_rows(Images(folder))
    x = load_image_rows(Images(folder, (2, 3))).arrays["x"]
    assert x.shape == (5, 3, 2, 3)
    expected = Image.fromarray(drawn(9, (8, 8))).resize((3, 2), Image.Resampling.BILINEAR)
    assert (x[-1].transpose(1, 2, 0) == np.asarray(expected)).all()


def test_a_picture_that_is_none_is_named(folder: Path) -> None:
    (folder / "cats" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n damaged")
    with pytest.raises(Refused, match=r"bad\.png cannot be read as a picture: .*repair it, or leave it out"):
        load_image_rows(Images(folder))
    Image.fromarray(drawn(1)).save(folder / "cats" / "bad.png", format="GIF")
    with pytest.raises(Refused, match=r"bad\.png cannot be read as a picture"):
        load_image_rows(Images(folder))


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (lambda folder: Images(folder, mode="CMYK"), "there is no mode 'CMYK': choose one of RGB, L"),
        (lambda folder: Images(folder, (0, 3)), r"a size is \(height, width\) in pixels, such as"),
        (lambda folder: Images(folder / "dogs"), "put each class's pictures in a folder"),
        (lambda folder: Images(folder / "none"), "there is no folder"),
    ],
)
def test_a_mistake_in_pictures_is_refused_in_a_sentence(folder: Path, images: Any, said: str) -> None:
    with pytest.raises((Refused, NotFound), match=said):
        load_image_rows(images(folder))


def test_without_pillow_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(Refused, match=r"pictures need Pillow.*pip install 'gradmarket\[images\]'"):
        load_rows(folder)


def test_the_command_packs_pictures_for_a_ready_architecture(folder: Path, tmp_path: Path) -> None:
    def run_pack(*options: str) -> Any:
        common = ["--rows-per-partition", "2", "-o", str(tmp_path / "packed")]
        return CliRunner().invoke(app, ["data", "pack", str(folder), *common, *options])

    done = run_pack("--size", "8", "--grey")
    assert done.exit_code == 0, done.output
    manifest = parse_manifest((tmp_path / "packed" / "manifest.json").read_bytes())
    assert manifest.labelled == Labelled(dtype="uint8", shape=(1, 8, 8), classes=2)
    done = run_pack("--size", "big")
    assert done.exit_code
    assert "--size big: write HEIGHTxWIDTH in pixels, such as 32x32" in " ".join(done.output.split())
