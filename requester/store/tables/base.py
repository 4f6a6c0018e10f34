"""The base class of all tables, and the types of their columns."""

from dataclasses import asdict
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Dialect, Float, Integer, LargeBinary, String
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

from gradmarket.market.messages import Offer
from gradmarket.market.terms import (
    AccusationState,
    Address,
    AuditState,
    BatchState,
    CalibrationState,
    Digest,
    Hash,
    JobState,
    PanelSeatState,
    Plan,
    ReplicaState,
    RoundState,
    TaskState,
    Units,
)
from gradmarket.market.wire.poll import OfferFields

BigKey = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only where the key is an INTEGER."""
STATES = (
    AccusationState,
    AuditState,
    BatchState,
    CalibrationState,
    JobState,
    PanelSeatState,
    ReplicaState,
    RoundState,
    TaskState,
)
_OFFERS_HASHES = ("spec", "parameters", "seed", "anchor")


class StateColumn(TypeDecorator[StrEnum]):
    """A state's value as text."""

    impl = String
    cache_ok = True

    def __init__(self, states: type[StrEnum]) -> None:
        super().__init__()
        self.states = states
        self._by_value = {state.value: state for state in states}

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        return None if value is None else str(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        return None if value is None else self._by_value[value]


class OfferColumn(TypeDecorator[Offer]):
    """An offer as JSON, in the form that workers get it in."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        return OfferFields.of(value).model_dump(mode="json")

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        """Checks nothing, unlike OfferFields: these are the service's own rows, and many of them."""
        return Offer(**(value | {name: bytes.fromhex(value[name][2:]) for name in _OFFERS_HASHES}))


class PlanColumn(TypeDecorator[Plan]):
    """How a task is checked, as JSON."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        return asdict(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        return Plan(**value)

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        return self.impl_instance.coerce_compared_value(op, value)  # `Task.plan["audit"]` is looked up as in JSON


class Base(DeclarativeBase):
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        **dict.fromkeys((int, Units), BigInteger),
        float: Float(53),
        **dict.fromkeys((bytes, Hash), LargeBinary),
        dict[str, Any]: JSON,
        **dict.fromkeys((str, Address, Digest), String),
        **{states: StateColumn(states) for states in STATES},
        Offer: OfferColumn,
        Plan: PlanColumn,
    }
