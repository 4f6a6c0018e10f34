"""Tests whether `column` is one of a bound list of texts, by one statement that is prepared once for all lengths.

An IN with a list of parameters is another statement for each length, built, parsed and planned anew each time.
"""

import json
from typing import Any, Final, Self

from sqlalchemy import Boolean, ColumnElement, Dialect, Float, Text, bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.types import TypeDecorator, TypeEngine


class Texts(TypeDecorator[list[str]]):
    """A list of texts as a parameter: an array on PostgreSQL, JSON on SQLite."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(ARRAY(Text()) if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return list(value) if dialect.name == "postgresql" else json.dumps(list(value))


class _Among(FunctionElement[bool]):
    name = "among"
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: OperatorType | None = None) -> Self:  # noqa: ARG002
        """Leaves the condition bare: SQLite finds `… IN (…) = 1` along no index."""
        return self


NOW: Final = bindparam("now", type_=Float(53))
"""The present time as a parameter, in Unix seconds."""


def is_in_bound_list(column: InstrumentedAttribute[Any] | ColumnElement[Any], name: str) -> ColumnElement[bool]:
    return _Among(column, bindparam(name, type_=Texts))


@compiles(_Among)
def _in_json(element: _Among, compiler: SQLCompiler, **kw: Any) -> str:
    column, texts = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({texts}))"


@compiles(_Among, "postgresql")
def _in_array(element: _Among, compiler: SQLCompiler, **kw: Any) -> str:
    column, texts = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} = ANY ({texts})"
