"""Field types of what strangers post: amounts, digests, names, and models that refuse unknown fields."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from gradmarket.market.terms import Address, Amount, Hash


def _amount(value: Any) -> Amount:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("an amount is a decimal string in the token's smallest unit")
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) <= 78):
        raise ValueError("an amount is a decimal string in the token's smallest unit")
    if int(value) < 0:
        raise ValueError("an amount is not negative")
    return Amount(int(value))


AMOUNT_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": "^[0-9]{1,78}$",
    "examples": ["1000000000000000000"],
}
AmountField = Annotated[
    Amount,
    BeforeValidator(_amount),
    Field(json_schema_extra=AMOUNT_SCHEMA),
    PlainSerializer(str, return_type=str),
]


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        if not value.startswith("0x"):
            raise ValueError("hexadecimal starts with 0x")
        return bytes.fromhex(value[2:])
    return value


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def hex_bytes(length: int) -> tuple[Any, ...]:
    """Returns the annotations of a field of `length` bytes, `0x…` in JSON."""
    digits = 2 * length
    schema: dict[str, Any] = {"type": "string", "pattern": f"^0x[0-9a-f]{{{digits}}}$"}
    schema |= {"minLength": 2 + digits, "maxLength": 2 + digits}
    return (
        BeforeValidator(_bytes),
        Field(min_length=length, max_length=length, json_schema_extra=schema),
        PlainSerializer(_hex, return_type=str),
    )


HashField = Annotated[Hash, *hex_bytes(32)]
SignatureField = Annotated[bytes, *hex_bytes(65)]
AddressField = Annotated[Address, Field(pattern=r"^0x[0-9a-fA-F]{40}$")]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def not_kept(value: Any) -> str:
    """Returns why a database or JSON cannot store the value; empty where both can.

    Refused are a NUL in a text, half of a surrogate pair (which UTF-8 cannot encode), an infinite number and NaN.
    """
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, str):
            if "\0" in part:
                return "a text has a NUL character"
            if not part.isascii() and _SURROGATE.search(part):
                return "a text has half of a surrogate pair"
        elif isinstance(part, float):
            if not math.isfinite(part):
                return "a number is infinite or none"
        elif isinstance(part, list | tuple):
            parts.extend(part)
        elif not isinstance(part, int | None) and isinstance(part, Mapping):
            parts.extend(part)
            parts.extend(part.values())
    return ""


def first_fault(error: ValidationError, *within: str) -> tuple[str, str]:
    """Returns the first refused field, as a dotted path beneath `within`, and the reason."""
    fault = error.errors()[0]
    return ".".join((*within, *map(str, fault["loc"]))), fault["msg"].removeprefix("Value error, ")


class Part(BaseModel):
    """A frozen part of a specification that refuses unknown fields, NaN and infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class Chosen(BaseModel):
    """A plug-in by its name; fields that the model does not declare are the plug-in's settings."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)
    name: Name

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})
