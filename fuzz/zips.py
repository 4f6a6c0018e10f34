"""A zip written field by field, so that any field of any record may lie (APPNOTE 6.3.10, sections 4.3.7 to 4.3.16)."""

import struct
import zlib
from dataclasses import dataclass, field, fields
from random import Random
from typing import Final

from fuzz.splices import INTEGERS

STORED, DEFLATED = 0, 8
NAMES: Final = ("x.npy", "y.npy", "../x.npy", "/x.npy", "x", "x.npy\0.txt", "X.NPY", "é.npy", "", "a/b.npy", "a" * 300)


@dataclass
class Member:
    """A member by its central record; `local` and `extra` fields are right unless changed."""

    name: bytes
    body: bytes
    method: int = DEFLATED
    flags: int = 0
    crc: int = 0
    packed_size: int = 0
    size: int = 0
    offset: int = -1
    """The stated place of the local record; -1: its true place."""
    version: int = 20
    extra: bytes = b""
    local_name: bytes = b""
    packed: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        packer = zlib.compressobj(1, zlib.DEFLATED, -15)
        self.packed = packer.compress(self.body) + packer.flush() if self.method == DEFLATED else self.body
        self.crc, self.size, self.packed_size = zlib.crc32(self.body), len(self.body), len(self.packed)
        self.local_name = self.name


_NUMBERS: Final = ("method", "flags", "crc", "packed_size", "size", "offset", "version")


def lied(members: list[Member], chance: Random) -> None:
    """One field of one member changed: a number, a name, an extra field, the packed bytes, or a member twice."""
    member = chance.choice(members)
    draw = chance.random()
    if draw < 0.5:
        setattr(member, chance.choice(_NUMBERS), chance.choice(INTEGERS))
    elif draw < 0.6:
        member.name = chance.choice(NAMES).encode()
    elif draw < 0.7:
        member.local_name = chance.choice(NAMES).encode()
    elif draw < 0.85:
        member.extra = _zip64(chance)
        member.size = member.packed_size = 2**32 - 1
        member.offset = chance.choice((-1, 0, 2**32 - 1))
    elif draw < 0.95:
        member.packed = member.packed[: chance.randrange(len(member.packed) + 1)] + chance.randbytes(4)
    else:
        members.append(Member(*(getattr(member, entry.name) for entry in fields(member)[:3])))


def _zip64(chance: Random) -> bytes:
    numbers = [chance.choice((*INTEGERS, 128, 132)) for _ in range(chance.randrange(5))]
    body = b"".join(struct.pack("<Q", number) for number in numbers)
    return struct.pack("<HH", 1, chance.choice((len(body), len(body), 0, 28, 0xFFFF))) + body


def joined(members: list[Member], chance: Random | None = None) -> bytes:
    """The file. With `chance`, one number of the end record lies."""
    body, directory = b"", b""
    for member in members:
        at = len(body) if member.offset < 0 else member.offset & (2**32 - 1)
        local, name, sizes = member.local_name, member.name, (member.crc, member.packed_size, member.size)
        fields = [member.version & 0xFFFF, member.flags & 0xFFFF, member.method & 0xFFFF, 0, 33]
        fields += [number & (2**32 - 1) for number in sizes]
        body += struct.pack("<4s5H3I2H", b"PK\x03\x04", *fields, len(local), 0) + local + member.packed
        counted = [len(name), len(member.extra), 0, 0, 0, 0, at]
        directory += struct.pack("<4sH5H3I5H2I", b"PK\x01\x02", 20, *fields, *counted) + name + member.extra
    end = [0, 0, len(members), len(members), len(directory), len(body), 0]
    if chance is not None:
        place = chance.randrange(len(end))
        end[place] = chance.choice((end[place] + 1, max(0, end[place] - 1), *INTEGERS)) & (0xFFFF if place < 4 else ~0)
        end = [min(number, 0xFFFF if place in (0, 1, 2, 3, 6) else 2**32 - 1) for place, number in enumerate(end)]
    return body + directory + struct.pack("<4s4H2IH", b"PK\x05\x06", *end)
