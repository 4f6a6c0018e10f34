"""The line by which a machine joins a service."""

from urllib.parse import urlsplit

from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network.environment import is_loopback


def build_join_command(url: str, facts: ChainFacts) -> str:
    """Returns the worker's command for a machine that reaches the service under `url`.

    A local chain's node is reached through the service's door, unless its own address, which is on loopback, is near.
    """
    elsewhere = f" --rpc {url}/chain" if facts.rpc and not is_loopback(urlsplit(url).hostname or "") else ""
    return f"gradmarket worker run --market {url}{elsewhere}"
