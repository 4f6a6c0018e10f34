"""Whether the service lives, and whether it can work."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from gradmarket.requester.api.state import Here

router = APIRouter(tags=["service"])


class Health(BaseModel):
    status: str


class Readiness(BaseModel):
    status: str
    database: str
    blobs: str
    chain: str


@router.get("/v1/health", summary="The process answers")
def health() -> Health:
    return Health(status="ok")


@router.get("/v1/ready", response_model=Readiness, responses={503: {"model": Readiness}}, summary="It can work")
def ready(context: Here) -> JSONResponse:
    checks = {"database": _database(context), "blobs": _blobs(context), "chain": context.chain_trouble()}
    told = {name: trouble or "ok" for name, trouble in checks.items()}
    sound = not any(checks.values())
    return JSONResponse({"status": "ok" if sound else "not ready", **told}, 200 if sound else 503)


def _database(context: Here) -> str:
    try:
        with context.reading() as session:
            session.execute(text("SELECT 1"))
    except SQLAlchemyError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _blobs(context: Here) -> str:
    try:
        context.blobs.put(b"ready")
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return ""
