"""A server in a thread of a test that ends at once: uvicorn's own looks ten times a second whether it is to end."""

import asyncio
import socket
import threading
from contextlib import suppress

import uvicorn

from tests.patience import pause, wait_for, wait_for_end

DATED_S = 1.0
"""Between two renewals of the date that its answers bear, as uvicorn's."""


class PromptServer(uvicorn.Server):
    """Serves between `start` and `stop`."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._listening, self._told = threading.Event(), asyncio.Event()

    def start(self, sockets: list[socket.socket] | None = None) -> None:
        """Returns once it listens."""
        self._thread = threading.Thread(target=self._run_once, args=(sockets,), daemon=True)
        self._thread.start()
        wait_for(self._listening)
        assert self.started, "the server did not start"

    def request_stop(self) -> None:
        self.should_exit = True
        with suppress(RuntimeError):  # its loop is closed: it has ended
            self._loop.call_soon_threadsafe(self._told.set)

    def stop(self) -> None:
        """Returns once the answers under way are sent and its connections closed."""
        self.request_stop()
        wait_for_end(self._thread)

    def _run_once(self, sockets: list[socket.socket] | None) -> None:
        try:
            self.run(sockets)
        finally:
            self._listening.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._listening.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), DATED_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for door in sockets or ():
            door.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:
                    await pause()
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()
