"""Takes off the path in the service's public address where a proxy passes it on: routes are at the root."""

from starlette.types import ASGIApp, Receive, Scope, Send


class OwnPath:
    """`path` has no slash at its end. Requests without it come from a proxy that takes it off, or from beside us."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._path and scope["path"].startswith(f"{self._path}/"):
            raw = scope.get("raw_path") or b""
            scope = {**scope, "path": scope["path"].removeprefix(self._path)}
            scope["raw_path"] = raw.removeprefix(self._path.encode())
        await self._app(scope, receive, send)
