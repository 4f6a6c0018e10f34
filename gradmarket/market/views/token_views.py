"""API tokens, as an administrator asks for them and the API answers them."""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from gradmarket.market.patterns import TOKEN_NAME
from gradmarket.market.terms import Role

DAY_S: Final = 86_400
LONGEST_DAYS: Final = 3650


class NewToken(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=TOKEN_NAME, description="What it is for; no two tokens share a name")
    role: Role
    expires_in_s: int | None = Field(
        default=90 * DAY_S, ge=1, le=LONGEST_DAYS * DAY_S, description="Seconds until it ends; null: never"
    )


class TokenView(BaseModel):
    name: str
    role: Role
    created_at: str | None
    expires_at: str | None


class CreatedToken(TokenView):
    token: str = Field(description="The secret. It is kept as a hash, so nobody can tell it again.")
