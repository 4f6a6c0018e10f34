"""npz: zips whose records lie, overlap, repeat, inflate or hold pickles, and members that are no arrays."""

import zipfile
from io import BytesIO
from random import Random
from typing import Final

from fuzz.case import Case
from fuzz.kinds._arrays import Arrays, arrays, declared, otherwise, read_as
from fuzz.kinds.npy import damaged
from fuzz.splices import spliced
from fuzz.zips import DEFLATED, STORED, Member, joined, lied
from gradmarket.market.errors import TensorsRefused
from graphdoc.formats import format_of

REFUSED: Final = TensorsRefused
BOMB: Final = bytes(2**20)


def case(chance: Random) -> Case:
    found = arrays(chance)
    members = [_member(name, {name: array}, chance) for name, array in sorted(found.items())]
    return Case(chance.choice(_CHANGES)(members, chance), otherwise(declared(found), chance))


def read(case: Case) -> Arrays:
    return read_as("npz", case)


def _member(name: str, array: Arrays, chance: Random) -> Member:
    return Member(f"{name}.npy".encode(), format_of("npy").write(array), chance.choice((STORED, DEFLATED)))


def _same(members: list[Member], chance: Random) -> bytes:
    return joined(members)


def _records(members: list[Member], chance: Random) -> bytes:
    for _ in range(chance.choice((1, 1, 2))):
        lied(members, chance)
    return joined(members)


def _ending(members: list[Member], chance: Random) -> bytes:
    return joined(members, chance)


def _bodies(members: list[Member], chance: Random) -> bytes:
    place = chance.randrange(len(members))
    members[place] = Member(
        members[place].name, damaged(members[place].body, chance), chance.choice((STORED, DEFLATED))
    )
    return joined(members)


def _inflated(members: list[Member], chance: Random) -> bytes:
    """A mebibyte in a kibibyte, which the records admit or deny."""
    place = chance.randrange(len(members))
    size = members[place].size
    members[place] = Member(members[place].name, members[place].body + BOMB)
    if chance.random() < 0.7:
        members[place].size = size
    return joined(members)


def _overlapping(members: list[Member], chance: Random) -> bytes:
    """Every record leads to the first body (Fifield 2019), under names of their own."""
    for member in members:
        member.offset, member.packed_size, member.size, member.crc = (
            0, members[0].packed_size, members[0].size, members[0].crc,
        )  # fmt: skip
    return joined(members)


def _in_another(members: list[Member], chance: Random) -> bytes:
    return joined([Member(chance.choice((b"x.npy", b"x.zip")), joined(members))])


def _others(members: list[Member], chance: Random) -> bytes:
    """As Python's own zip writer has it, packed by methods that are not read."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w", chance.choice((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))) as archive:
        for member in members:
            info = zipfile.ZipInfo(member.name.decode(), (1980, 1, 1, 0, 0, 0))
            archive.writestr(info, member.body, archive.compression)
    return file.getvalue()


def _spliced(members: list[Member], chance: Random) -> bytes:
    return spliced(joined(members), chance)


_CHANGES: Final = (
    _same, _records, _records, _records, _ending, _ending, _bodies, _bodies, _inflated, _overlapping, _in_another,
    _others, _spliced, _spliced,
)  # fmt: skip
