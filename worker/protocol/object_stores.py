"""Uploads payloads directly to the object store that the market names, if a download from it would be allowed."""

import httpx

from gradmarket.compute.addresses import Resolve, place, resolve
from gradmarket.compute.clocked import ClockedTransport
from gradmarket.compute.download_errors import DownloadFailed
from gradmarket.market.wire import ANSWER_WITHIN
from gradmarket.worker.protocol.outgoing import Payload

PUT_S = 600.0


class ObjectStores:
    """`allowed`: origins that this worker's owner named; only these may be in its own network."""

    def __init__(self, allowed: frozenset[str], look_up: Resolve = resolve) -> None:
        self._allowed = allowed
        self._look_up = look_up

    def put(self, door: str, payload: Payload) -> None:
        """Sends one PUT without credentials; follows no redirect. Raises DownloadRefused or DownloadFailed."""
        target = place(door, "", self._look_up, own=False, allowed=self._allowed)
        name = httpx.URL(f"http://{target.host}").host
        timeout = httpx.Timeout(30.0, write=PUT_S, read=PUT_S)
        extensions = {"sni_hostname": name, ANSWER_WITHIN: PUT_S}
        network = ClockedTransport()
        with payload.open() as file, httpx.Client(trust_env=False, timeout=timeout, transport=network) as http:
            headers = {"host": target.host}
            request = http.build_request("PUT", target.url, headers=headers, content=file, extensions=extensions)
            try:
                response = http.send(request)
            except httpx.TransportError as error:
                raise DownloadFailed(f"{target.host}: {error or type(error).__name__}") from error
        if not response.is_success:
            raise DownloadFailed(f"{target.host} answers {response.status_code}")
