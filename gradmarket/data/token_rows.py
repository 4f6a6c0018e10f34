"""Text as rows for a language model: the tokens of all of it, cut into windows, and `y` the same moved on by one.

The manifest names the tokenizer, so that later prompts are tokenized alike.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.manifest import TextEncoding

BYTES: Final = "bytes"
SUFFIXES: Final = (".txt", ".md")
BETWEEN: Final = "\n\n"
"""Separator of two texts."""


class ByteTokenizer:
    """Each byte of UTF-8 is a token: every text has one, and none is unknown."""

    vocabulary: Final = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text; half a character at an end becomes U+FFFD."""
        return bytes(int(token) for token in tokens).decode(errors="replace")


@dataclass(frozen=True)
class Text:
    """A dataset of text: `source` is the text itself or several, or the Path of a file or of a folder of .txt and .md.

    A row has `length` tokens. `tokenizer` is one of the packages `tokenizers` or `transformers`, or any object with
    `encode` and a length; without one each byte of UTF-8 is a token.
    """

    source: str | Path | Sequence[str]
    length: int
    tokenizer: Any = None


@dataclass(frozen=True)
class TextRows:
    """`arrays` has x and y int64[rows, length], tokens below `encoding.vocabulary`."""

    arrays: dict[str, np.ndarray]
    encoding: TextEncoding


def load_text_rows(text: Text, trained: TextEncoding | None = None) -> TextRows:
    """Raises NotFound, or Refused for too little text, tokens out of range, and a tokenizer that is none, or another
    than the one `trained` with."""
    if isinstance(text.length, bool) or not isinstance(text.length, int) or text.length < 1:
        raise Refused(f"a row of text has a whole number of tokens from 1 on, such as length=64, not {text.length!r}")
    encoding = describe_tokenizer(text.tokenizer, text.length)
    tokens = encode_text(_read_source(text.source), text.tokenizer, trained or encoding)
    rows = (len(tokens) - 1) // text.length
    if rows < 2:
        raise Refused(
            f"{len(tokens)} tokens are too few: two rows of {text.length} take {2 * text.length + 1}: give more text, "
            "or a smaller length"
        )
    x, y = (tokens[start : start + rows * text.length].reshape(rows, text.length) for start in (0, 1))
    return TextRows({"x": x, "y": y}, encoding)


def encode_text(text: str, tokenizer: Any, encoding: TextEncoding) -> np.ndarray:
    """Returns tokens int64[tokens]. Raises Refused where the tokenizer is another than the encoding's."""
    own = describe_tokenizer(tokenizer, encoding.length)
    if (own.tokenizer, own.vocabulary) != (encoding.tokenizer, encoding.vocabulary):
        trained = f"{encoding.tokenizer} of {encoding.vocabulary} tokens"
        raise Refused(f"the model was trained with the tokenizer {trained}, not {own.tokenizer} of {own.vocabulary}")
    given = (tokenizer or ByteTokenizer()).encode(text)
    tokens = np.asarray(getattr(given, "ids", given))
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        raise Refused("the tokenizer's encode gives no list of whole numbers")
    if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < encoding.vocabulary:
        raise Refused(f"the tokenizer gives token {int(tokens.max())}, beyond its vocabulary of {encoding.vocabulary}")
    return tokens.astype(np.int64)


def describe_tokenizer(tokenizer: Any, length: int) -> TextEncoding:
    """Raises Refused for an object that is no tokenizer."""
    if tokenizer is None:
        return TextEncoding(tokenizer=BYTES, vocabulary=ByteTokenizer.vocabulary, length=length)
    count: Callable[[], int] | None = getattr(tokenizer, "get_vocab_size", getattr(tokenizer, "__len__", None))
    if count is None or not hasattr(tokenizer, "encode") or isinstance(tokenizer, str):
        raise Refused(f"a {type(tokenizer).__name__} is no tokenizer: give one with encode(text) and a length")
    name = str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)
    return TextEncoding(tokenizer=name[:200], vocabulary=int(count()), length=length)


def load_tokenizer(path: Path) -> Any:
    """Returns the tokenizer of a file of the package `tokenizers`. Raises NotFound, Refused."""
    if not path.is_file():
        raise NotFound(f"there is no {path}")
    try:
        library = import_module("tokenizers")
    except ModuleNotFoundError:
        raise Refused("a tokenizer file needs the package tokenizers: pip install tokenizers") from None
    try:
        return library.Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001  # it raises nothing more special
        raise Refused(f"{path} is no tokenizer file: {str(error)[:200]}") from None


def _read_source(source: str | Path | Sequence[str]) -> str:
    if isinstance(source, str):
        return source
    if not isinstance(source, Path):
        given: object = source
        if isinstance(given, bytes) or not isinstance(given, Iterable):
            raise Refused(f"a text is a str, not {type(source).__name__}: give text, a list of texts, or a Path")
        texts = list(given)
        if others := [one for one in texts if not isinstance(one, str)]:
            raise Refused(f"a text is a str, not a {type(others[0]).__name__}: give text, a list of texts, or a Path")
        return BETWEEN.join(texts)
    if not source.exists():
        raise NotFound(f"there is no {source}")
    paths = sorted(path for path in source.rglob("*") if path.suffix in SUFFIXES) if source.is_dir() else [source]
    if not paths:
        raise Refused(f"{source} has no {' or '.join(SUFFIXES)} files")
    found = []
    for path in paths:
        try:
            found.append(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise Refused(f"{path} is not text in UTF-8: convert it, or leave it out") from None
        except OSError as error:
            raise Refused(f"{path} cannot be read: {error.strerror}") from None
    return BETWEEN.join(found)
