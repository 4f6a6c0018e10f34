"""Text as rows of tokens whose targets are moved on by one, by bytes or by another's tokenizer; and its mistakes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.data.pack import Cut, pack_dataset
from gradmarket.data.token_rows import ByteTokenizer, Text, encode_text, load_text_rows
from gradmarket.market.errors import JobRefused, NotFound, Refused
from gradmarket.market.manifest import Labelled, parse_manifest
from gradmarket.sdk.rows import load_rows
from graphdoc.encoding import canonical
from graphdoc.formats import format_of

WRITTEN = "Ångström measured. The dog runs. " * 8


def words() -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({"[?]": 0, "the": 1, "dog": 2, "runs": 3}, unk_token="[?]"))
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer


@given(st.text(min_size=20, max_size=200), st.integers(1, 9))
def test_each_target_is_the_token_after_it(text: str, length: int) -> None:
    tokens = np.frombuffer(text.encode(), np.uint8)
    rows = load_text_rows(Text(text, length))
    x, y = rows.arrays["x"], rows.arrays["y"]
    assert x.shape == y.shape == ((len(tokens) - 1) // length, length)
    assert (x.ravel() == tokens[: x.size]).all()
    assert (y.ravel() == tokens[1 : x.size + 1]).all()
    assert ByteTokenizer().decode(tokens.tolist()) == text


def test_a_manifest_of_text_is_what_the_ready_gpt_takes() -> None:
    """Without the vocabulary as its classes the rows were of no kind that a ready architecture takes."""
    rows = load_rows(Text(WRITTEN, 16))
    packed = pack_dataset(rows.arrays, Cut(8, classes=rows.classes), rows.encoding)
    manifest = parse_manifest(packed.body)
    assert manifest.labelled == Labelled(dtype="int64", shape=(16,), classes=256)
    assert manifest.labelled.reads == "tokens"
    assert manifest.text is not None
    assert (manifest.text.tokenizer, manifest.text.vocabulary, manifest.text.length) == ("bytes", 256, 16)
    twin = pack_dataset(rows.arrays, Cut(8))
    assert twin.manifest.labelled is None
    assert b"text" not in twin.body
    assert b"shifted" not in twin.body


def test_the_tokens_are_stored_once_and_y_is_moved_on_by_the_manifest() -> None:
    rows = load_text_rows(Text(WRITTEN, 16))
    packed = pack_dataset(rows.arrays, Cut(99, classes=256), rows.encoding)
    part, manifest = packed.manifest.partitions[0], parse_manifest(packed.body)
    assert manifest.shifted == {"y": "x"}
    stored = format_of(part.format).read(packed.files[part.name], {"x": ((part.rows, 17), "int64")})
    plain = pack_dataset(rows.arrays, Cut(99, classes=256))
    both = format_of(part.format).read(plain.files[part.name], plain.manifest.batch(part.rows))
    assert stored["x"][:, :-1].tolist() == both["x"].tolist()
    assert stored["x"][:, 1:].tolist() == both["y"].tolist()
    own = {"x": rows.arrays["x"], "y": rows.arrays["x"]}
    other = pack_dataset(rows.arrays, Cut(99, classes=256), rows.encoding, own)
    assert other.manifest.shifted == {}, "rows to measure on whose y is not x moved on"


@pytest.mark.parametrize(
    ("shifted", "said"),
    [
        ({"y": "z"}, "y moves on from z, and both are inputs"),
        ({"y": "y"}, "and not the same one"),
        ({"y": "w"}, "y is w moved on, so both have one type and shape"),
        ({"v": "u"}, "v is u moved on, so both have one type and shape"),
        ({"y": "x", "x": "y"}, "1 at most"),
    ],
)
def test_a_manifest_whose_y_cannot_move_on_is_refused_in_a_sentence(shifted: dict[str, str], said: str) -> None:
    tokens, one = {"dtype": "int64", "shape": [4]}, {"dtype": "int64", "shape": []}
    inputs = {"x": tokens, "y": tokens, "w": {"dtype": "int32", "shape": [4]}, "u": one, "v": one}
    with pytest.raises(JobRefused, match=said):
        parse_manifest(canonical({"inputs": inputs, "partitions": [], "shifted": shifted}))


@pytest.mark.parametrize("known", [True, False])
def test_a_tokenizer_that_the_researcher_has_makes_the_tokens(known: bool) -> None:
    text = "the dog runs the dog " * 9 if known else "cat " * 30
    rows = load_text_rows(Text(text, 4, words()))
    assert rows.encoding.vocabulary == 4
    assert rows.arrays["x"][0].tolist() == ([1, 2, 3, 1] if known else [0] * 4)
    with pytest.raises(Refused, match="was trained with the tokenizer Tokenizer of 4 tokens, not bytes of 256"):
        encode_text("the dog", None, rows.encoding)
    assert encode_text("the dog", words(), rows.encoding).tolist() == [1, 2]


def test_files_and_folders_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("second")
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "c.bin").write_bytes(b"\xff")
    rows = load_text_rows(Text(tmp_path, 1))
    assert bytes(rows.arrays["x"].ravel().tolist()) == b"first\n\nsecon"
    assert load_text_rows(Text(["first", "second"], 1)).arrays["x"].tolist() == rows.arrays["x"].tolist()


class Overflowing:
    def encode(self, text: str) -> list[int]:
        return [len(text)] * len(text)

    def __len__(self) -> int:
        return 5


class Fractional(Overflowing):
    def encode(self, text: str) -> list[float]:  # type: ignore[override]
        return [0.5] * len(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (Text("short", 8), "5 tokens are too few: two rows of 8 take 17"),
        (Text("", 1), "0 tokens are too few"),
        (Text(WRITTEN, 0), "a row of text has a whole number of tokens from 1 on"),
        (Text(WRITTEN, 8, 7), "a int is no tokenizer: give one with encode"),
        (Text(WRITTEN, 8, Overflowing()), "the tokenizer gives token .*, beyond its vocabulary of 5"),
        (Text(WRITTEN, 8, Fractional()), "gives no list of whole numbers"),
        (Text([b"bytes"], 8), "a text is a str, not a bytes"),  # type: ignore[list-item]
        (Text([0], 8), "a text is a str, not a int"),  # type: ignore[list-item]
    ],
)
def test_a_mistake_in_text_is_refused_in_a_sentence(text: Text, said: str) -> None:
    with pytest.raises(Refused, match=said):
        load_text_rows(text)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("Ångström".encode("latin-1"))
    with pytest.raises(Refused, match=r"latin\.txt is not text in UTF-8"):
        load_text_rows(Text(tmp_path, 1))
    (tmp_path / "latin.txt").unlink()
    with pytest.raises(Refused, match=r"has no \.txt or \.md files"):
        load_text_rows(Text(tmp_path, 1))
    with pytest.raises(NotFound, match="there is no"):
        load_text_rows(Text(tmp_path / "none.txt", 1))


def run_pack(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["data", "pack", *map(str, arguments)])


def test_the_command_packs_text_and_names_a_missing_input(tmp_path: Path) -> None:
    book, packed = tmp_path / "book.txt", tmp_path / "packed"
    book.write_text(WRITTEN)
    words().save(str(tmp_path / "words.json"))
    done = run_pack(book, "--rows-per-partition", 4, "--length", 8, "--held-out", 0.2, "-o", packed)
    assert done.exit_code == 0, done.output
    manifest = parse_manifest((packed / "manifest.json").read_bytes())
    assert manifest.labelled == Labelled(dtype="int64", shape=(8,), classes=256)
    part = manifest.partitions[0]
    stored = format_of(part.format).read((packed / part.file).read_bytes(), {"x": ((part.rows, 9), "int64")})
    assert all(bytes(row.tolist()) in WRITTEN.encode() for row in stored["x"])
    done = run_pack(
        book, "--rows-per-partition", 4, "--length", 4, "--tokenizer", tmp_path / "words.json", "-o", packed
    )
    assert done.exit_code == 0, done.output
    assert parse_manifest((packed / "manifest.json").read_bytes()).inputs["y"].classes == 4
    for asked, said in (
        ([book], "name how many tokens a row has, such as --length 64"),
        ([book, "--length", 4, "--tokenizer", book], "book.txt is no tokenizer file"),
        ([book, "--length", 4, "--tokenizer", tmp_path / "none"], "there is no "),
        ([tmp_path / "none.txt", "--length", 4], "there is no "),
    ):
        done = run_pack(*asked, "--rows-per-partition", 4, "-o", packed)
        assert done.exit_code
        assert said in " ".join(done.output.split()), done.output
        assert "Traceback" not in done.output
