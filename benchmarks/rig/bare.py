"""FastAPI on uvicorn with one route and nothing else, on a free port that it writes to the file it is given."""

import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from requester.features.health import Health

PATH = "/v1/health"


async def health() -> Health:
    return Health(status="ok")


def main(file: Path) -> None:
    app = FastAPI()
    app.get(PATH)(health)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        beside = file.with_suffix(".new")
        beside.write_text(f"http://127.0.0.1:{listening.getsockname()[1]}")
        beside.replace(file)
        uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run([listening])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
