"""docs/architecture.md: its names exist, it has every stage, and its first change works unchanged."""

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from gradmarket.market.errors import PayloadRefused
from requester.engine import STAGES
from tests import test_plugins

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:gradmarket|graphdoc|contracts|requester|worker|tests)/[\w/.]*)`", PAGE)))
(CODEC,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("path", [name for name in NAMED if not name.endswith("fp16.py")])
def test_a_file_named_on_the_architecture_page_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_stage_is_in_the_life_of_a_task() -> None:
    stages = {Path(stage.__file__ or "").name for stage in STAGES.values()} - {"expire.py"}
    assert {f"requester/stages/{name}" for name in stages} <= set(NAMED)


def test_the_files_of_the_architecture_picture_exist() -> None:
    root = ElementTree.parse(ROOT / "docs" / "architecture.svg").getroot()
    bold = [text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.get("font-weight")]
    files = [text.text or "" for text in bold if text.get("text-anchor")]
    places = [ROOT / room / f"{word}.py" for word in files for room in ("requester", "worker", ".")]
    here = {path.stem for path in places if path.exists()}
    assert len(files) >= 17
    assert {word.rpartition("/")[2] for word in files} - here == {"src"}


def test_the_first_change_is_a_codec(tmp_path: Path) -> None:
    path = tmp_path / "fp16.py"
    path.write_text(CODEC)
    specification = importlib.util.spec_from_file_location("fp16", path)
    assert specification is not None
    assert specification.loader is not None
    codec = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(codec)
    shard = test_plugins.normal(1, 1000)
    packed = codec.pack(shard, bytes(32))
    assert len(packed) == codec.packed_bytes(1000) == 2000
    again = codec.unpack(memoryview(packed), 1000, bytes(32))
    assert np.abs(again - shard).max() < 2e-3
    assert codec.pack(again, bytes(32)) == packed
    with pytest.raises(PayloadRefused):
        codec.unpack(memoryview(packed[1:]), 1000, bytes(32))


def test_the_glossary_has_each_word_once() -> None:
    lines = [line for line in (ROOT / "docs" / "glossary.md").read_text().splitlines() if line.startswith("- **")]
    words = [word for line in lines for part in re.findall(r"\*\*(.+?)\*\*", line) for word in part.split(", ")]
    assert len(words) > 40
    assert sorted(words) == sorted(set(words))
