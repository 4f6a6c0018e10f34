"""The address of one part of an upload that goes directly to the store."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PartDoor:
    """Takes a PUT of `length` bytes, those from `start` on."""

    start: int
    length: int
    address: str
