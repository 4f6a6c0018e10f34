"""A round's price for a gradient. Each rule is one file, and a job refers to it by the file's name.

A rule is four pure things: `Settings`, `most`, `least` and `price`. Amounts are in the token's smallest unit, and every
price is a whole number of the job's units. A round's price is fixed when it opens, from the settings, the cost of
computing a task, and the previous round. So it is the same after a restart. A rule that depends on a round's duration
gives other prices in another run, but the resulting parameters do not depend on prices.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, cast

from pydantic import ConfigDict, GetJsonSchemaHandler, ValidationError, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue

from gradmarket.market.errors import Refused
from gradmarket.market.fields import AMOUNT_SCHEMA, DeferredModel, Name, Part, first_fault
from gradmarket.market.terms import Amount
from graphdoc import plugins

PLAIN = "fixed"
"""The rule of a plain amount."""


class Settings(Part):
    """A job's settings of its rule besides the name."""

    PRICES: ClassVar[tuple[str, ...]] = ()
    """Fields that are prices themselves: whole numbers of the job's units."""

    @model_validator(mode="after")
    def _something(self) -> "Settings":
        for field in self.PRICES:
            if getattr(self, field) == 0:
                raise ValueError(f"{field}: a gradient must cost more than 0")
        return self

    @property
    def later(self) -> Amount:
        """The most that an answer is paid over its price once its round is merged."""
        return Amount(0)


@dataclass(frozen=True, slots=True)
class PricedWork:
    """The cost of computing one task, by the document's bound; `unit` is the job's."""

    flops: int
    unit: Amount


@dataclass(frozen=True, slots=True)
class Past:
    """The previous round: its price for a gradient, and how long it was open."""

    price: Amount
    milliseconds: int


class Rule(Protocol):
    """The interface of a file in this folder."""

    @property
    def Settings(self) -> type[Settings]:  # noqa: N802
        """A subclass of `Settings`."""

    def most(self, settings: Any) -> Amount:
        """Returns the most that any round pays, for any document and past."""

    def least(self, settings: Any, work: PricedWork | None) -> Amount:
        """Returns the least that any round pays; without `work`, for any document."""

    def price(self, settings: Any, work: PricedWork, past: Past | None) -> Amount:
        """Returns a round's price for a gradient; the first round has no past.

        Raises JobRefused where the rule has no price for such work.
        """


def load_pricing_rule(name: str) -> Rule:
    """Returns the rule of that name. Raises Refused where there is none."""
    return cast(Rule, plugins.load_plugin(__name__, name))


class Price(DeferredModel):
    """`name` is a file of this folder; the other fields are its settings. A plain amount means `fixed`."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: Name

    @model_validator(mode="before")
    @classmethod
    def _spelt_out(cls, value: Any) -> Any:
        """Normalises a price to all its settings, so that equal prices have equal fields."""
        if isinstance(value, Price):
            return value
        fields = value if isinstance(value, dict) else {"name": PLAIN, "amount": value}
        name = str(fields.get("name", ""))
        try:
            settings = load_pricing_rule(name).Settings(**{field: fields[field] for field in fields if field != "name"})
        except Refused as error:
            raise ValueError(error.detail) from error
        except ValidationError as error:
            field, fault = first_fault(error)
            raise ValueError(f"{field}: {fault}" if field and name != PLAIN else fault) from error
        return {"name": name, **settings.model_dump(mode="json")}

    @model_serializer(mode="plain")
    def _plainly(self) -> Any:
        extra = dict(self.model_extra or {})
        return extra["amount"] if self.name == PLAIN else {"name": self.name, **extra}

    @classmethod
    def __get_pydantic_json_schema__(cls, _core: Any, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Returns a schema of a plain amount, or of any rule with its settings."""
        schemas = [AMOUNT_SCHEMA]
        for name in plugins.list_plugin_names(__name__):
            schema = load_pricing_rule(name).Settings.model_json_schema()
            properties = {"name": {"type": "string", "const": name}} | schema["properties"]
            required = ["name", *schema.get("required", [])]
            schemas.append({**schema, "title": f"Price_{name}", "properties": properties, "required": required})
        return {"anyOf": schemas}

    @cached_property
    def settings(self) -> Settings:
        return load_pricing_rule(self.name).Settings(**(self.model_extra or {}))

    @property
    def prices(self) -> dict[str, Amount]:
        """The settings that are prices, by the job's field that a refusal would name."""
        named = {field: Amount(getattr(self.settings, field)) for field in self.settings.PRICES}
        return {"price" if self.name == PLAIN else f"price.{field}": amount for field, amount in named.items()}

    @property
    def most(self) -> Amount:
        return load_pricing_rule(self.name).most(self.settings)

    @property
    def later(self) -> Amount:
        return self.settings.later

    def least(self, work: PricedWork | None = None) -> Amount:
        return load_pricing_rule(self.name).least(self.settings, work)

    def of(self, work: PricedWork, past: Past | None) -> Amount:
        """Returns a round's price for a gradient."""
        return load_pricing_rule(self.name).price(self.settings, work, past)
