"""What an operator may set, from GRADMARKET_… in the environment; read once, frozen."""

from pathlib import Path

from pydantic import Field, HttpUrl, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="GRADMARKET_", frozen=True, extra="ignore")

    data: Path = Path("data")
    """Folder of the embedded defaults: database, blobs, keys, the local chain's state."""
    host: str = "127.0.0.1"
    port: int = Field(default=8700, ge=0, le=65535)
    url: str | None = None
    """The address that workers reach the service under, where it is not host and port."""
    database: str | None = None
    """SQLAlchemy address; SQLite in the data folder where none is given."""
    rpc: HttpUrl | None = None
    """The chain's JSON-RPC; a local Anvil of its own where none is given."""
    token: SecretStr | None = None
    """The requester's API token; one is made in the data folder where none is given."""
    signer_key: SecretStr | None = None
    """Signs offers, waves, verdicts and vouchers; made in the data folder where none is given."""
    sender_key: SecretStr | None = None
    """Owns the jobs on-chain and sends transactions; the local chain's development key where there is one."""
    settle_every_s: float = Field(default=5.0, gt=0)
    settle_gradients: int = Field(default=500, ge=1, le=4000)
    confirmations: int = Field(default=1, ge=1)
    reserve_ahead: int = Field(default=20, ge=1, le=10_000)
    """Gradients reserved ahead for a worker that has earned before."""
    claim_window_s: int = Field(default=7 * 86_400, ge=1)
    """How long workers may redeem after a job's end."""
    min_claim_window_s: int = Field(default=60, ge=1)
    """The least claim window of a contract that is deployed anew (local chains)."""
    max_body_bytes: int = Field(default=1 << 20, ge=1024)
    max_blob_bytes: int = Field(default=8 << 30, ge=1024)
    max_strikes: int = Field(default=5, ge=1)
    """Leases, reveals and uploads a worker may leave unanswered before it is drawn no more."""
    max_attempts: int = Field(default=8, ge=1)
    """Attempts at one task before its job pauses."""
    trusted_proxies: frozenset[str] = frozenset()
    """Addresses whose X-Forwarded-For is believed."""
    session_s: int = Field(default=86_400, ge=60)
    sweep_s: float = Field(default=1.0, gt=0)
    keep_parameters_every: int = Field(default=10, ge=1)
    """Checkpoints that are kept for ever; of the other rounds only the newest few are."""

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.data / 'gradmarket.sqlite'}"
