"""Uploads payloads directly to the object store that the market names, if a download from it would be allowed."""

import base64
import hashlib

import httpx

from gradmarket.market.wire.poll import ANSWER_WITHIN
from gradmarket.network import DownloadFailed
from gradmarket.network.addresses import Resolve, check_link_target, resolve_host
from gradmarket.network.clocked import HOST_NAMED, ClockedTransport
from worker.protocol.outgoing import CHUNK, Payload

PUT_S = 600.0


class ObjectStores:
    """`allowed`: origins that this worker's owner named; only these may be in its own network."""

    def __init__(self, allowed: frozenset[str], look_up: Resolve = resolve_host) -> None:
        self._allowed = allowed
        self._look_up = look_up

    def put(self, door: str, payload: Payload, start: int = 0, length: int | None = None) -> None:
        """Sends one PUT without credentials, of all bytes or of `length` from `start` on; follows no redirect.

        The store refuses other bytes than those of their Content-MD5. Raises DownloadRefused or DownloadFailed.
        """
        target = check_link_target(door, "", self._look_up, own=False, allowed=self._allowed)
        name = httpx.URL(f"http://{target.host}").host
        timeout = httpx.Timeout(30.0, write=PUT_S, read=PUT_S)
        extensions = {HOST_NAMED: name, ANSWER_WITHIN: PUT_S}
        network = ClockedTransport()
        length = payload.length - start if length is None else length
        headers = {
            "host": target.host,
            "content-length": str(length),
            "content-md5": _compute_md5(payload, start, length),
        }
        with httpx.Client(trust_env=False, timeout=timeout, transport=network) as http:
            body = payload.span(start, length)
            request = http.build_request("PUT", target.url, headers=headers, content=body, extensions=extensions)
            try:
                response = http.send(request)
            except httpx.TransportError as error:
                raise DownloadFailed(f"{target.host}: {error or type(error).__name__}") from error
        if not response.is_success:
            raise DownloadFailed(f"{target.host} answers {response.status_code}")


def _compute_md5(payload: Payload, start: int, length: int) -> str:
    """In base 64, as RFC 1864 has it: against accidents on the way, not against anybody."""
    hasher = hashlib.md5(usedforsecurity=False)
    with payload.path.open("rb") as file:
        file.seek(start)
        while length > 0 and (chunk := file.read(min(CHUNK, length))):
            hasher.update(chunk)
            length -= len(chunk)
    return base64.b64encode(hasher.digest()).decode()
