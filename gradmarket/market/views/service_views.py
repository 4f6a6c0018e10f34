"""Health and readiness, as the API answers them."""

from pydantic import BaseModel


class Health(BaseModel):
    status: str


class Readiness(BaseModel):
    """`ok`, or what is wrong in words."""

    status: str
    database: str
    blobs: str
    chain: str
