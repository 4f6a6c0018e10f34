"""Patterns of what people write, and what each takes in words: a refusal has the words."""

from collections.abc import Mapping
from typing import Final

TAG: Final = r"^[A-Za-z0-9][A-Za-z0-9._:=-]{0,39}$"
TAG_OR_NONE: Final = rf"{TAG}|^$"
TOKEN_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
WEBHOOK: Final = r"^[0-9a-f]{16}$"
DIGEST: Final = r"^blake3:[0-9a-f]{64}$"

_TAG: Final = "a tag is one word: letters, digits and . _ : = - inside, 40 at most"
PATTERNS: Final[Mapping[str, str]] = {
    TAG: _TAG,
    TAG_OR_NONE: _TAG,
    TOKEN_NAME: "a token's name is one word: letters, digits and . _ - inside, 64 at most",
    WEBHOOK: "the id of a webhook has 16 digits of 0 to 9 and a to f: `gradmarket webhook list` has them",
    DIGEST: "a digest is blake3: and 64 digits of 0 to 9 and a to f",
}
