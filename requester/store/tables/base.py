"""The base class of all tables, and their column types."""

from typing import Any

from sqlalchemy import JSON, BigInteger, Float, Integer, LargeBinary, String
from sqlalchemy.orm import DeclarativeBase

BigKey = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only where the key is an INTEGER."""


class Base(DeclarativeBase):
    type_annotation_map = {int: BigInteger, float: Float(53), bytes: LargeBinary, dict[str, Any]: JSON, str: String}
