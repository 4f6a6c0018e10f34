"""Links of a dataset into a worker's own network: judged by address, after the name is resolved, at every redirect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from tempfile import TemporaryDirectory

from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import MarketError
from gradmarket.market.terms import blob_digest
from gradmarket.network.addresses import check_link_target
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.kit.web_server import send_page, serving_by

SECRET = b"what only the worker's own network may read"
PUBLIC = "93.184.216.34"


@contextmanager
def inside(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[tuple[str, list[str]]]:
    """A service inside the worker's network: its address, and the paths it was asked for."""
    asked: list[str] = []

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            answer(self)

    with serving_by(Door) as url:
        yield url, asked


def secret(request: BaseHTTPRequestHandler) -> None:
    send_page(request, SECRET)


def fetched(scene: Scene, link: str, origin: str = "") -> str:
    """Returns the bytes that a worker of this market gets from a partition's link."""
    with TemporaryDirectory() as folder:
        fetcher = Fetcher(Cache(Path(folder), 10**6), origin or scene.url, limit=10**6)
        try:
            fetcher.get(link, blob_digest(SECRET), len(SECRET))
        except MarketError as error:
            return type(error).__name__
        finally:
            fetcher.close()
    return "fetched"


@attack("dataset link to a private address", "loopback DownloadRefused, asked 0; metadata service DownloadRefused")
def a_link_to_the_machine_itself(scene: Scene) -> str:
    with inside(secret) as (url, asked):
        loopback = fetched(scene, f"{url}/secret")
    metadata = fetched(scene, "http://169.254.169.254/latest/meta-data")
    return f"loopback {loopback}, asked {len(asked)}; metadata service {metadata}"


@attack("redirect to a private address", "DownloadRefused, asked 0")
def the_market_itself_redirects(scene: Scene) -> str:
    """The market's own address may be a loopback one; where it redirects to may not."""
    with inside(secret) as (target, asked):

        def away(request: BaseHTTPRequestHandler) -> None:
            request.send_response(302)
            request.send_header("location", f"{target}/secret")
            request.end_headers()

        with inside(away) as (market, _):
            answer = fetched(scene, f"{market}/v1/blobs/{blob_digest(SECRET)}", origin=market)
    return f"{answer}, asked {len(asked)}"


@attack("DNS rebinding", "look-ups 1; connects to the judged address; one of several is private: DownloadRefused")
def a_name_that_changes_its_address(scene: Scene) -> str:
    """The name is resolved once; the connection goes to the address that was judged."""
    answers = [[PUBLIC], ["127.0.0.1"]]
    asked: list[str] = []

    def look_up(host: str, _port: int) -> list[str]:
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    found = check_link_target("http://rebinding.example/x", scene.url, look_up)
    where = "the judged address" if found.url.host == PUBLIC else found.url.host
    try:
        check_link_target("http://both.example/x", scene.url, lambda _host, _port: [PUBLIC, "127.0.0.1"])
        mixed = "taken"
    except MarketError as error:
        mixed = type(error).__name__
    return f"look-ups {len(asked)}; connects to {where}; one of several is private: {mixed}"
