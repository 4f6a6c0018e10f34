"""Settings of the service, read once from GRADMARKET_… in the environment and frozen.

A setting that the environment does not name, or leaves empty, is read from the file of that name, in small letters, in
the folder GRADMARKET_SECRETS, if set: containers mount secrets as files (`/run/secrets/gradmarket_database`).
"""

import os
import re
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, HttpUrl, IPvAnyNetwork, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SecretsSettingsSource, SettingsConfigDict

from contracts import GROUP, OTHERS
from gradmarket.market.signing import NamedAddress
from gradmarket.network.addresses import server_origin
from gradmarket.network.environment import is_address, is_loopback

SECRETS = "GRADMARKET_SECRETS"
OF_COMPOSE: Final = frozenset(
    f"GRADMARKET_{name}"
    for name in ("CHAIN_PORT", "CONCURRENCY", "GRAFANA_PORT", "SECRETS", "SECRETS_FOLDER", "TLS_HOST", "TLS_PORT")
)
"""Read by docker-compose.yml, or before any setting: no misspelt ones."""
LEAST_MODEL_MEMORY: Final = 4 << 30


def check_auditor_device(device: str) -> str:
    """Returns the device. Raises ValueError for a word that names none."""
    if not re.fullmatch("none|auto|cpu|cuda(:[0-9]+)?", device):
        raise ValueError("name auto, cpu, cuda, or a card like cuda:0; or none, for no auditor")
    return device


def check_host(host: str) -> str:
    """Returns the host. Raises ValueError for an empty one, such as of a variable that is not set."""
    if not host.strip():
        raise ValueError("it is empty: write 127.0.0.1, or 0.0.0.0 for every address of this machine")
    return host


def check_proxy_path(path: str) -> str:
    """Returns the path. Raises ValueError unless it begins and ends with a slash."""
    if not (path.startswith("/") and path.endswith("/")):
        raise ValueError("a path begins and ends with a slash, such as /inside/blobs/")
    return path


class RequesterSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="GRADMARKET_", env_ignore_empty=True, frozen=True, extra="ignore")

    data: Path = Path("data")
    """Folder of the embedded defaults: database, blobs, keys, the local chain's state."""
    host: Annotated[str, AfterValidator(check_host)] = "127.0.0.1"
    """The address to listen on; behind a proxy that ends TLS it stays this one."""
    port: int = Field(default=8700, ge=0, le=65535)
    """The port to listen on; 0 for any that is free."""
    url: str | None = None
    """The address that workers reach the service under, where it is not host and port."""
    database: str | None = None
    """SQLAlchemy address, such as `postgresql://user@host/name`; SQLite in the data folder where none is given."""
    auditor: Annotated[str, AfterValidator(check_auditor_device)] = "auto"
    """The device of the service's own auditor, one for all services that share the database: auto, cpu or cuda; or
    none, for no such auditor.
    """
    stages: Literal["embedded", "celery"] = "embedded"
    """The runner of the stages: threads of this service, or Celery (`gradmarket queue`) with PostgreSQL and Redis."""
    broker: SecretStr | None = None
    """Redis for Celery, such as `redis://host:6379/0`."""
    blobs: str = "disk"
    """Where blobs lie: disk, in the data folder; or s3, in a bucket that workers reach past the service."""
    s3_endpoint: HttpUrl | None = None
    """The S3-compatible store, as this service reaches it; AWS where none is given. boto3 finds its credentials."""
    s3_public_endpoint: HttpUrl | None = None
    """The same store, as workers and requesters reach it."""
    s3_region: str = "us-east-1"
    """The bucket's region."""
    s3_bucket: str = "gradmarket"
    """The bucket; made where it is missing."""
    rpc: HttpUrl | None = None
    """The chain's JSON-RPC; a local Anvil of its own where none is given."""
    token: SecretStr | None = None
    """The requester's API token; one is made in the data folder where none is given."""
    signer_key: SecretStr | None = None
    """Signs offers, waves, verdicts and vouchers; made in the data folder where none is given."""
    sender_key: SecretStr | None = None
    """Sends transactions, and owns the jobs on-chain where no other owner is named; made where none is given."""
    owner: NamedAddress | None = None
    """Owns the jobs on-chain with a key that is not here: it signs deposits and withdrawals elsewhere."""
    passphrase: SecretStr | None = None
    """Keeps the keys in the data folder encrypted."""
    passphrase_file: Path | None = None
    """The same, from a file's first line."""
    plain_keys: bool = False
    """Allows unencrypted keys where money is real; a local chain allows them anyway."""
    settle_every_s: float = Field(default=5.0, gt=0)
    """Seconds that the oldest earned gradient waits before its batch goes on-chain."""
    settle_gradients: int = Field(default=500, ge=1, le=4000)
    """The number of gradients that sends a batch at once."""
    confirmations: int = Field(default=1, ge=1)
    """Blocks until an event on-chain counts."""
    max_fee: float | None = Field(default=None, gt=0)
    """The highest price of gas that the service pays, in Gwei, tip included; any price where none is given. While gas
    is dearer it sends nothing, and its jobs report it.
    """
    reserve_ahead: int = Field(default=20, ge=1, le=10_000)
    """The most gradients reserved ahead for a worker: one for each that it earned in the job."""
    claim_window_s: int = Field(default=7 * 86_400, ge=1)
    """How long workers may redeem after a job's end."""
    min_claim_window_s: int = Field(default=60, ge=1)
    """The least claim window of a contract that is deployed anew (local chains)."""
    max_body_bytes: int = Field(default=1 << 20, ge=1024)
    """Of a request that is no upload."""
    max_blob_bytes: int = Field(default=8 << 30, ge=1024)
    """Of an uploaded model or partition."""
    unfinished_bytes: int = Field(default=64 << 30, ge=0)
    """Bytes of interrupted uploads of payloads, kept for an hour to be continued, and at most half of the free disk;
    beyond that the worker with the most loses its oldest.
    """
    body_s: float = Field(default=20.0, gt=0)
    """Seconds for the body of a request that is no upload."""
    header_s: float = Field(default=10.0, gt=0)
    """Seconds for the headers of a request."""
    silence_s: float = Field(default=30.0, gt=0)
    """Seconds that an upload may pause, or an answer stay unread."""
    address_rate: float = Field(default=500.0, gt=0)
    """Requests a second from one address; 429 above."""
    address_burst: float = Field(default=5000.0, ge=1)
    """Requests at once from one address."""
    stranger_rate: float = Field(default=10.0, gt=0)
    """Requests a second from one address without the requester's token or that of a worker that was paid before; a
    sign-in counts as ten, and every 16 KiB of a body as one."""
    stranger_burst: float = Field(default=200.0, ge=1)
    """The same, at once: enough for eight new workers and a watcher behind one address."""
    address_connections: int = Field(default=256, ge=1)
    """Connections of one address, which waiting polls and events hold; more are closed at once."""
    address_streams: int = Field(default=16, ge=1)
    """Streams of events that one address follows at a time; 429 above."""
    streams: int = Field(default=1000, ge=1)
    """Streams of events that all follow at a time; 503 above."""
    refused_s: float = Field(default=2.0, ge=0)
    """Seconds that a 429 is held back, up to five times as many while many of an address wait: a flooder waits on each
    connection.
    """
    token_rate: float = Field(default=100.0, gt=0)
    """Requests a second with one token."""
    token_burst: float = Field(default=1000.0, ge=1)
    """Requests at once with one token."""
    wallet_rate: float = Field(default=100.0, gt=0)
    """Requests a second from one worker's wallet, whichever of its tokens it sends."""
    wallet_burst: float = Field(default=1000.0, ge=1)
    """Requests at once from one worker's wallet."""
    unlimited: frozenset[IPvAnyNetwork] = frozenset({IPv4Network("127.0.0.0/8"), IPv6Network("::1/128")})
    """Addresses or networks without a limit of their own; their tokens and wallets keep theirs. Loopback is none of
    them where GRADMARKET_URL leads elsewhere and neither this nor a trusted proxy is named: requests from there then
    come through a proxy. Requests that any of them forwards, with a proxy's header, are limited as one address."""
    upload_quota: int = Field(default=100 * 2**30, ge=2**20)
    """Bytes that a token of the role submit may upload in all; an admin's, as the service's own is, any number."""
    max_strikes: int = Field(default=5, ge=1)
    """Strikes of one operator in one job before it gets no work there; they halve in two hours (rules.strikes)."""
    max_attempts: int = Field(default=8, ge=1)
    """Attempts at one task without silent workers before its job pauses; anew after a resume."""
    trusted_proxies: frozenset[IPvAnyNetwork] = frozenset()
    """Addresses or networks whose X-Forwarded-For is believed."""
    proxy_blobs: Annotated[str, AfterValidator(check_proxy_path)] | None = None
    """The path under which a trusted proxy serves the folder of blobs by itself, when the service sends it there
    (X-Accel-Redirect), such as `/inside/blobs/`; the service sends the bytes where none is given. The data folder's
    group may read along then."""
    webhook_servers: frozenset[Annotated[str, AfterValidator(server_origin)]] = frozenset()
    """Origins such as `http://10.0.0.5:8080` to which webhooks may go that are not public or have no TLS."""
    session_s: int = Field(default=86_400, ge=60)
    """How long a worker's sign-in holds."""
    sweep_s: float = Field(default=1.0, gt=0)
    """Seconds between two sweeps of a stage for rows whose notification was lost."""
    drain_s: int = Field(default=5, ge=1)
    """How long requests in progress may go on when the service is asked to end."""
    tracing: Path | None = None
    """File for spans of requests, stages, transactions and merges: OpenTelemetry's JSON, one a line; or none."""
    log: str = "WARNING"
    """The least level that is logged: DEBUG, INFO, WARNING or ERROR."""
    keep_parameters_every: int = Field(default=10, ge=1)
    """Checkpoints that are kept for ever; of the other rounds only the newest few are."""
    snapshot_rounds: int = Field(default=8, ge=1)
    """Rounds between two stored states of the optimizer; until then payloads stay, to be merged again after a crash.
    Where several processes merge (Celery), each replays the others' merges: few rounds are better.
    """
    snapshot_s: float = Field(default=10.0, ge=0)
    """Seconds after the last snapshot from which a round's end stores one anyway."""
    step_memory: int = Field(default=128 << 30, ge=2**28)
    """Bytes that a pass of a job's step may take on its workers' devices, by the document's bound: a job that no card
    holds is refused, with the microbatch that fits. Nothing of it is computed here."""
    model_memory: int | None = Field(default=None, ge=2**28)
    """Bytes that publishing or measuring a model may take here; else half of the machine's, and 4 GiB at least."""
    merge_memory: int = Field(default=2 << 30, ge=0)
    """Bytes of models and optimizer states that each process that merges keeps in memory: those of the job that it
    merges and, between merges, of others. A job that takes more is merged in files, a shard at a time: twice its
    parameters and its optimizer's state. Celery has as many such processes as its concurrency."""

    merge_spread: int = Field(default=1 << 30, ge=0)
    """Bytes of a model's parameters from which on several processes merge a round, where Celery runs the stages: they
    read and write the optimizer's state at every round, which takes longer than merging a smaller model in memory."""
    merge_part: int = Field(default=32 << 20, ge=4 << 20)
    """Bytes of parameters in each message of such a merge, and the loss when a process is killed. It takes about ten
    times as much memory; the largest tensor, where that is more and the optimizer needs whole ones.
    """

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        folder = os.environ.get(SECRETS)
        files = SecretsSettingsSource(settings_cls, folder) if folder else file_secret_settings
        return (init_settings, env_settings, dotenv_settings, files)

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is not None and not is_address(url):
            raise ValueError("no address of a service: write it like http://127.0.0.1:8700")
        return url

    @field_validator("broker")
    @classmethod
    def _has_a_place(cls, broker: SecretStr | None) -> SecretStr | None:
        try:
            _ = broker and urlsplit(broker.get_secret_value()).port
        except ValueError:
            raise ValueError("no address of Redis: write it like redis://127.0.0.1:6379/0") from None
        return broker

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.stages == "celery" and (self.broker is None or not self.database_url.startswith("postgresql")):
            raise ValueError("stages in Celery need a PostgreSQL database and a Redis broker")
        if self.proxy_blobs and not (self.trusted_proxies and self.blobs == "disk"):
            raise ValueError("a proxy that serves blobs must be one of GRADMARKET_TRUSTED_PROXIES, and blobs on disk")
        return self

    @property
    def hidden(self) -> int:
        """Returns the permissions that no file in the data folder has: the group's too, unless a proxy
        serves from it.
        """
        return GROUP if self.proxy_blobs else OTHERS

    @property
    def exempt(self) -> frozenset[IPvAnyNetwork]:
        """Returns the addresses and networks to which the limits of an address do not apply."""
        chosen = "unlimited" in self.model_fields_set or bool(self.trusted_proxies)
        here = self.url is None or is_loopback(urlsplit(self.url).hostname or "")
        return self.unlimited if chosen or here else frozenset()

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.data / 'gradmarket.sqlite'}"
