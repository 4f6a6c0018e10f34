"""Field types of posted data, which may be hostile: amounts, digests, names, and models that refuse unknown fields.

Each pattern has a text for its refusal. Tags and a note, by which a requester finds a job again, are under no digest.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, get_args

from eth_utils.address import to_checksum_address
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    PlainSerializer,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError

from gradmarket.market.printable import Printable
from gradmarket.market.terms import REPRODUCIBLE, Address, Amount, Digest, Hash

TAG: Final = r"^[A-Za-z0-9][A-Za-z0-9._:=-]{0,39}$"
TAG_OR_NONE: Final = rf"{TAG}|^$"
TOKEN_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
SHORT_ID: Final = r"^[0-9a-f]{16}$"
"""Of a job or a webhook."""
ADDRESS: Final = r"^0x[0-9a-fA-F]{40}$"
ID: Final = r"^[0-9A-Za-z-]{1,64}$"
NAME: Final = r"^[a-z][a-z0-9_]{0,39}$"
NO_NUL: Final = r"^[^\x00]*$"
"""PostgreSQL's texts hold every character but NUL. No pattern matches half of a surrogate pair."""
METRIC_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,39}$"
DIGEST: Final = r"^blake3:[0-9a-f]{64}$"

_TAG: Final = "a tag is one word: letters, digits and . _ : = - inside, 40 at most"
PATTERNS: Final[Mapping[str, str]] = {
    TAG: _TAG,
    TAG_OR_NONE: _TAG,
    TOKEN_NAME: "a token's name is one word: letters, digits and . _ - inside, 64 at most",
    SHORT_ID: "an id has 16 digits of 0 to 9 and a to f",
    ADDRESS: "an address is 0x and 40 digits of 0 to 9 and a to f",
    ID: "an id has letters, digits and dashes, 64 at most",
    NAME: "a name begins with a to z and goes on with these, digits and _, 40 at most",
    NO_NUL: "a text has no NUL character",
    METRIC_NAME: "a name begins with a letter or _ and goes on with these and digits, 40 at most",
    DIGEST: "a digest is blake3: and 64 digits of 0 to 9 and a to f",
}


Model = TypeVar("Model", bound=BaseModel)


def _check_announced_class(name: str) -> str:
    if name == REPRODUCIBLE:
        raise ValueError(f"{name} is no machine's own class: jobs of reproducible arithmetic give it")
    return name


AnnouncedClass = Annotated[Printable, AfterValidator(_check_announced_class)]
"""The determinism class that a machine names itself."""
_NO_AMOUNT: Final = "no amount: write it like '0.01 GRAD', '1e18 units', or '1000' of the token's smallest unit"


def _parse_amount(value: Any) -> Amount:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(_NO_AMOUNT)
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) <= 78):
        raise ValueError(_NO_AMOUNT)
    if int(value) < 0:
        raise ValueError("an amount must not be negative")
    return Amount(int(value))


AMOUNT_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": "^[0-9]{1,78}$",
    "examples": ["1000000000000000000"],
}
AmountField = Annotated[
    Amount,
    BeforeValidator(_parse_amount),
    Field(json_schema_extra=AMOUNT_SCHEMA),
    PlainSerializer(str, return_type=str),
]


def _parse_hex_bytes(value: Any) -> Any:
    if isinstance(value, str):
        if not value.startswith("0x"):
            raise ValueError("hexadecimal starts with 0x")
        return bytes.fromhex(value[2:])
    return value


def hex_bytes(length: int) -> tuple[Any, ...]:
    """Returns the annotations of a field of `length` bytes, `0x…` in JSON."""
    digits = 2 * length
    schema: dict[str, Any] = {"type": "string", "pattern": f"^0x[0-9a-f]{{{digits}}}$"}
    schema |= {"minLength": 2 + digits, "maxLength": 2 + digits}
    return (
        BeforeValidator(_parse_hex_bytes),
        Field(min_length=length, max_length=length, json_schema_extra=schema),
        PlainSerializer(lambda value: "0x" + value.hex(), return_type=str),
    )


HashField = Annotated[Hash, *hex_bytes(32)]
SignatureField = Annotated[bytes, *hex_bytes(65)]
AddressField = Annotated[Address, Field(pattern=ADDRESS), AfterValidator(lru_cache(2**16)(to_checksum_address))]
"""An address in any spelling; its value has that of EIP-55, so that one key has one name."""
Name = Annotated[str, Field(pattern=NAME)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


NO_URL: Final = "no address of a service: write it like http://127.0.0.1:8700"
NO_URLS: Final[Mapping[str, str]] = {
    "rpc": "no address of a chain's node: write it like http://127.0.0.1:8545",
    "s3_endpoint": "no address of a store: write it like http://127.0.0.1:9000",
    "s3_public_endpoint": "no address of a store: write it like https://store.example.org",
}
"""The words for the addresses of something else, by the field's name."""
BOUNDS: Final = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")
"""Faults of numbers, and of NaN, which is within no bound."""
FORMS: Final[Mapping[str, str]] = {
    "tuple_type": "write a list",
    "list_type": "write a list",
    "dict_type": "write an object",
    "model_type": "write an object",
    "model_attributes_type": "write an object",
    "dataclass_type": "write an object",
}
"""The required form of a field, in words of JSON: pydantic's are Python's."""
ALIKE: Final = 0.65
"""The least similarity of an unknown field to a known one for which it is suggested (difflib's ratio)."""
NAMED: Final = re.compile(r"[a-z_]+(\.[a-z_]+)*")
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


MOST_FAULTS: Final = 1000
"""The most faults that are listed: each takes a kilobyte, and a body of a megabyte can have a million."""


def _stop_at_first_item(schema: Any) -> Any:
    if isinstance(schema, dict):
        inner = {name: _stop_at_first_item(part) for name, part in schema.items()}
        return inner | {"fail_fast": True} if schema.get("type") in ("list", "tuple", "dict") else inner
    return [_stop_at_first_item(part) for part in schema] if isinstance(schema, list) else schema


class DeferredModel(BaseModel):
    """A model whose validator pydantic builds at its first use: a process imports many models and uses few."""

    model_config = ConfigDict(defer_build=True)


class OneFaultModel(DeferredModel):
    """A message of the other side, which may be hostile: its lists, tuples and dictionaries end at their first
    wrong item.

    `max_length` counts the right items alone: without this a hostile list is refused item by item.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: CoreSchema = _stop_at_first_item(handler(source))
        return schema


def first_fault(error: ValidationError, *within: str) -> tuple[str, str]:
    """Returns the first refused field, as a dotted path beneath `within`, and the reason."""
    fault = faults_of(error)[0]
    place = (*within, *map(str, fault["loc"]))
    no_address = fault["type"] in ("url_parsing", "url_scheme")
    return ".".join(place), NO_URLS.get(place[-1], NO_URL) if no_address else describe_fault(fault)


def faults_of(error: ValidationError) -> list[ErrorDetails]:
    """Returns the errors, but for those that follow from others: a list is too short where its items are refused.

    More than MOST_FAULTS are one, which has their number alone.
    """
    if error.error_count() > MOST_FAULTS:
        return [ErrorDetails(type="crowd", loc=(), msg=f"{error.error_count()} faults", input=None)]
    faults = error.errors()
    refused = [fault["loc"] for fault in faults]

    def follows(fault: ErrorDetails) -> bool:
        place = fault["loc"]
        return fault["type"] == "too_short" and any(one[: len(place)] == place and one != place for one in refused)

    return [fault for fault in faults if not follows(fault)]


def in_words(fault: Mapping[str, Any], location: Sequence[int | str], given: Any) -> tuple[str, str]:
    """Returns the dotted path of a refused field in the input, and the reason.

    A rule of several fields begins its reason with the one to change: "overlap: no round leaves tasks". The path omits
    the names by which pydantic distinguishes a choice of models.
    """
    found, at = list[str](), given  # of a missing field the value that lacks it
    for index, part in enumerate(location):
        listed = isinstance(at, list) and isinstance(part, int) and part < len(at)
        last = isinstance(at, Mapping) and index + 1 == len(location)
        if listed or (isinstance(at, Mapping) and part in at):
            at = at[part]  # a whole number in a list, or a key that is there
        elif not (last and fault["type"] == "missing"):
            continue
        found.append(str(part))
    fault_text = describe_fault(fault)
    named, _, rest = fault_text.partition(": ")
    if fault["type"] == "value_error" and isinstance(at, Mapping) and NAMED.fullmatch(named):
        found, fault_text = [*found, named], rest
    return ".".join(found), fault_text


def describe_fault(fault: Mapping[str, Any]) -> str:
    """Returns why a value was refused, without a pattern where it has words, and without Python's names of types."""
    kind, facts = fault["type"], fault.get("ctx") or {}
    if kind == "string_pattern_mismatch":
        pattern = str(facts["pattern"])
        return PATTERNS.get(pattern, f"it must have the form {pattern}")
    if kind == "too_long" and isinstance(fault.get("input"), str):
        return f"{facts['max_length']} characters at most"
    if kind == "too_long":
        return f"{facts['max_length']} at most"
    if kind in BOUNDS and str(fault.get("input")).lower() == "nan":
        return "it is NaN, which is no number"
    return FORMS.get(kind) or str(fault["msg"]).removeprefix("Value error, ").partition(", unable to parse")[0]


def refuse_truths(kind: type[BaseModel], value: Any) -> None:
    """Raises ValidationError where a field that takes no truth value has one: pydantic takes `true` for 1."""
    if not isinstance(value, Mapping):
        return
    wrong = []
    for name, given in value.items():
        field = kind.model_fields.get(name)  # an undeclared one is refused, or kept, elsewhere
        if not isinstance(given, bool) or field is None or field.annotation is Any:
            continue
        if bool not in (field.annotation, *get_args(field.annotation)):
            wrong.append(name)
    if wrong:
        fault = PydanticCustomError("truth", "true and false are no numbers: write one, or leave the field out")
        lines = [InitErrorDetails(type=fault, loc=(name,), input=value[name]) for name in wrong]
        raise ValidationError.from_exception_data(kind.__name__, lines)


DigestField = Annotated[Digest, Field(pattern=DIGEST)]


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time needs a zone, e.g. 2026-12-01T00:00:00Z")
    return value.astimezone(UTC)


Time = Annotated[datetime, AfterValidator(_aware)]


class Part(DeferredModel):
    """A frozen part of a specification that refuses NaN, infinity and unknown fields: these with the nearest known."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())
    BESIDE: ClassVar[tuple[str, ...]] = ()
    """Fields beside these, taken out of the input earlier: a refusal of an unknown field lists them too."""

    @model_validator(mode="wrap")
    @classmethod
    def _nearest(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        refuse_truths(cls, value)
        try:
            return handler(value)
        except ValidationError as error:
            details = error.errors(include_url=False) if error.error_count() <= MOST_FAULTS else []
            if not any(map(_is_unknown_field, details)):
                raise
            known = [*cls.BESIDE, *(field.alias or name for name, field in cls.model_fields.items())]
            lines = []
            for detail in details:
                message = detail["msg"]
                if _is_unknown_field(detail):
                    near = get_close_matches(str(detail["loc"][0]), known, 1, ALIKE)
                    hint = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(known)}"
                    message = f"no such field; {hint}"
                kind = PydanticCustomError(detail["type"], "{said}", {"said": message})
                lines.append(InitErrorDetails(type=kind, loc=detail["loc"], input=detail["input"]))
            raise ValidationError.from_exception_data(error.title, lines) from None


def _is_unknown_field(detail: ErrorDetails) -> bool:
    return detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1


class Chosen(DeferredModel):
    """A plug-in by its name; fields that the model does not declare are the plug-in's settings."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)
    name: Name

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        refuse_truths(cls, value)
        return value

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


MOST_TAGS: Final = 20


Tag = Annotated[str, Field(pattern=TAG)]
Tags = Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS), AfterValidator(lambda tags: tuple(sorted(set(tags))))]
Note = Annotated[Printable, Field(max_length=2000)]
