"""Formats times, hashes, sketches and amounts for the API."""

from datetime import UTC, datetime

from gradmarket.market.gradient.projection import Sketch
from gradmarket.market.rules import sketch_packing


def format_time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def format_hex(value: bytes | None) -> str | None:
    return None if value is None else "0x" + value.hex()


def sketch_view(sketch: Sketch | None) -> dict[str, str] | None:
    """Returns each tensor's 64 float32, little-endian, in hexadecimal; None without a sketch."""
    return (
        None
        if sketch is None
        else {name: f"0x{data.hex()}" for name, data in sketch_packing.encode_sketch(sketch).items()}
    )


def format_amount(units: int, unit: str) -> str:
    return str(units * int(unit))
