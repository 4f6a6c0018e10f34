"""What a worker's owner watches: earnings, work and standing, on a terminal or as a page of this machine.

It reads the worker's folder, the chain and the market's public routes. It needs no key and changes nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from worker.feature import WorkerFeature
from worker.features.owner_page.elsewhere import Outlook
from worker.features.owner_page.local_page import serve_own_page
from worker.features.owner_page.own_facts import OwnFolder
from worker.features.owner_page.top_command import top
from worker.markets.market_session import Shared


class OwnerPageFeature(WorkerFeature):
    name = "owner_page"
    needs = ("stakes",)
    serves = frozenset({"page"})
    commands = {"top": top}

    @contextmanager
    def run_beside(self, shared: Shared) -> Iterator[None]:
        settings = shared.settings
        if settings.page is None:
            yield
            return
        with serve_own_page(Outlook(settings, OwnFolder(settings.data)), settings.page) as url:
            shared.journal.say("page", f"What this worker earns and does: {url}", url=url)
            yield
