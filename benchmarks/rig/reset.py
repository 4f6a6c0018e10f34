"""Breaks a TCP connection in the middle of its bytes by a packet that resets it (RFC 9293, section 3.10.7)."""

import struct
from dataclasses import dataclass
from typing import Final

HEADER: Final = 20
"""Bytes of IPv4's header, and of TCP's, without options."""
_TCP, _RESET = 6, 0x04


@dataclass(frozen=True)
class Tcp:
    """`ends`: both addresses, eight bytes. `ports`: both, four bytes. `length`: bytes of data."""

    ends: bytes
    ports: bytes
    sequence: int
    length: int

    def reset(self) -> bytes:
        """Returns the IPv4 packet that its receiver takes for the sender's end of the connection."""
        tcp = self.ports + struct.pack("!IIBBHHH", self.sequence, 0, HEADER // 4 << 4, _RESET, 0, 0, 0)
        summed = checksum(self.ends + struct.pack("!HH", _TCP, HEADER) + tcp)
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 2 * HEADER, 0, 0, 64, _TCP, 0) + self.ends
        ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
        return ip + tcp[:16] + struct.pack("!H", summed) + tcp[18:]


def parsed(packet: bytes) -> Tcp | None:
    """Returns the parsed packet; None unless it is TCP over IPv4."""
    if len(packet) < 2 * HEADER or packet[0] >> 4 != 4 or packet[9] != _TCP:
        return None
    start = 4 * (packet[0] & 15)
    data = start + 4 * (packet[start + 12] >> 4)
    (sequence,) = struct.unpack_from("!I", packet, start + 4)
    return Tcp(packet[12:20], packet[start : start + 4], sequence, len(packet) - data)


def checksum(data: bytes) -> int:
    """RFC 1071: the one's complement of the one's complement sum of 16-bit words."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(~total & 0xFFFF)
