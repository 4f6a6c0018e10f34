"""The worker's settings, from GRADMARKET_WORKER_… in the environment or the command line; read once, frozen."""

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, HttpUrl, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from contracts import keystore
from gradmarket.compute.own_machine import ALL, AUTO, list_device_names
from gradmarket.market.fields import ID
from gradmarket.market.money import WRITTEN
from gradmarket.market.signing import NamedAddress
from gradmarket.market.terms import JobId
from gradmarket.market.wire.poll import MAX_WAIT_S
from gradmarket.network.addresses import server_origin

GIB = 2**30
OF_COMPOSE: Final = frozenset({"GRADMARKET_WORKER_KIND", "GRADMARKET_WORKER_MEMORY"})
"""Read by docker-compose.yml: no misspelt settings."""
DAY_MINUTES: Final = 24 * 60
_SPAN: Final = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))? *- *([0-9]{1,2})(?::([0-9]{2}))?")
_FORM: Final = "write them like 22-6, or 22:30-6,12-13"

Span = tuple[int, int]
"""Minutes of the day: the first, and the one after the last; over midnight where that is less."""


def _check_amount_text(text: str) -> str:
    if not re.fullmatch(WRITTEN, text):
        raise ValueError(f"{text[:80]!r} is no amount: write it like '0.01 GRAD', '1e18 units' or '1000'")
    return text


def parse_hours(text: str) -> tuple[Span, ...]:
    """Returns the spans of `22-6` or `22:30-6,12-13`, in the machine's own time. Raises ValueError."""
    parts = [part.strip() for part in text.split(",")]
    if parts == [""]:
        return ()
    if "" in parts:
        raise ValueError(f"{text[:80]!r} has no hours beside a comma: {_FORM}")
    spans = list[Span]()
    for part in parts:
        found = _SPAN.fullmatch(part)
        if found is None:
            raise ValueError(f"{part[:80]!r} are no hours: {_FORM}")
        hours = [int(found[1]), int(found[3])]
        minutes = [60 * hour + int(minute or 0) for hour, minute in zip(hours, (found[2], found[4]), strict=True)]
        if max(minutes) > DAY_MINUTES or any(int(found[at] or 0) > 59 for at in (2, 4)):
            raise ValueError(f"{part!r} has no such time of day")
        if minutes[0] % DAY_MINUTES == minutes[1] % DAY_MINUTES and minutes != [0, DAY_MINUTES]:
            raise ValueError(f"{part!r} begins where it ends: write 0-24 for the whole day")
        spans.append((minutes[0] % DAY_MINUTES, minutes[1]))
    return tuple(spans)


def _check_hours(text: str) -> str:
    parse_hours(text)
    return text


PayText = Annotated[str, BeforeValidator(str), AfterValidator(_check_amount_text)]
"""An amount as people write it; its value in a token is known once a market names the token (market.money)."""


ServerOrigin = Annotated[str, AfterValidator(server_origin)]


class WorkerSettings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="GRADMARKET_WORKER_", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    market: HttpUrl = HttpUrl("http://127.0.0.1:8700")
    """The requester's service."""
    markets: tuple[HttpUrl, ...] = Field(default=(), max_length=16)
    """Further services: of those that pay in one token the best paying is asked for work first."""
    discover: bool = False
    """Work for markets that announce themselves on the chain, by the own node alone; instead of `market`'s default."""
    tokens: tuple[NamedAddress, ...] = Field(default=(), max_length=16)
    """Tokens that a discovered market may pay in, the preferred first. Where none is given: any, on a local chain."""
    since: int | None = Field(default=None, ge=0)
    """The block from which on announcements are looked for; some 200,000 back where none is given."""
    rpc: HttpUrl | None = None
    """This worker's own JSON-RPC to the chain; the market's is believed only where both are on this machine."""
    payout: NamedAddress | None = None
    """Where earnings go; the worker's own address where none is given."""
    consents: tuple[Path, ...] = Field(default=(), max_length=16)
    """Files in which the payout's key consents to be this worker's operator (`gradmarket wallet consent give`)."""
    data: Path = Path.home() / ".gradmarket" / "worker"
    """Folder of the key, the vouchers, the cache and the replicas in flight."""
    cache: Path | None = None
    """Folder of downloads, which workers of one machine may share: each is then fetched once; `cache` in `data` where
    none is given."""
    passphrase: SecretStr | None = None
    """Encrypts the key's file where given."""
    passphrase_file: Path | None = None
    """The same, from a file's first line."""
    plain_key: bool = False
    """Keep the key unencrypted where money is real; on a local chain it may be anyway."""
    stores: frozenset[ServerOrigin] = frozenset()
    """Origins of stores in the worker's own network that the market may send payloads and downloads to."""
    data_servers: frozenset[ServerOrigin] = frozenset()
    """Origins of servers in the worker's own network that jobs' datasets may be fetched from."""
    jobs: frozenset[Annotated[JobId, Field(pattern=ID)]] = Field(default=frozenset(), max_length=64)
    """Works for these jobs only; for any where empty."""
    dataset: Path | None = None
    """Folder of rows of its own (`gradmarket data pack`), for the one private job in `jobs`. They never leave it."""
    tell_rows: bool = True
    """Send that job the number of these rows; a job with `rows_cap` weighs an answer by it."""
    row_epsilon: float | None = Field(default=None, gt=0)
    """Takes no task by which all jobs together would disclose more than this of a row of the dataset, where they count
    it (`step.per_row`)."""
    row_delta: float = Field(default=1e-5, ge=1e-15, lt=1)
    """The delta at which that is counted: less than one over the dataset's rows."""
    min_price: PayText = "1"
    """Least pay for a gradient, like "0.01 GRAD", or in the token's smallest unit."""
    min_per_tflop: PayText = "0"
    """Least pay for 10^12 floating-point operations, by the document's bound."""
    min_per_hour: PayText = "0"
    """Least pay for an hour of steps, at the speed that this machine is measured at."""
    max_memory: int | None = Field(default=None, ge=2**28)
    """Bytes that a step may take. By default nine tenths of the card's free memory, else half of the machine's memory
    or of its control group's."""
    max_disk: int = Field(default=16 * GIB, ge=2**20)
    """Bytes that downloads may take."""
    max_window_states: int = Field(default=4 * GIB, ge=0)
    """Bytes of states kept for audits of a task's windows; the oldest go first, and one that went is computed anew."""
    max_download: int = Field(default=4 * GIB, ge=2**20)
    """Bytes of one download."""
    max_flops: float = Field(default=1e16, gt=0)
    """Floating-point operations that a step may take."""
    step_s: float = Field(default=3600.0, gt=0)
    """Seconds that a step may take."""
    device: Annotated[str, AfterValidator(list_device_names)] = AUTO
    """The computing device: cpu, or cuda:0 and the like; auto: a card that no other worker has, else the CPU. Several
    cards, as cuda:0,cuda:1 or all: each computes tasks of its own."""
    threads: int | None = Field(default=None, ge=1, le=256)
    """Threads of a step; part of the determinism class. Where none is given: OMP_NUM_THREADS where that is set, else
    the greatest power of two that this process has cores for, 16 at most; on a card 1."""
    hours: Annotated[str, AfterValidator(_check_hours)] = ""
    """Times of day, by this machine's clock, at which it takes tasks, like "22-6" or "22:30-6,12-13"; always by
    default. Tasks in hand are finished."""
    idle: bool = False
    """Takes tasks only while no other program uses the card, or over a quarter of the processors: looked at once a
    minute, between two tasks."""
    max_watts: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Takes no task while a card of this worker draws more watts, by NVIDIA's management library."""
    max_celsius: int | None = Field(default=None, ge=20, le=120)
    """Takes no task from when a card is warmer than this, in °C, until it is 5 below."""
    leases: int = Field(default=1, ge=1, le=16)
    """Replicas in flight at once, for each card."""
    unpaid: int = Field(default=1, ge=1, le=64)
    """Gradients for each card that one requester may owe at once, its broken promises included: the most a dishonest
    one can take."""
    stake_contest_s: float = Field(default=3600.0, ge=0)
    """No stake in a job that leaves less time, in seconds, to contest an accusation."""
    stake_lock_s: float = Field(default=30 * 86_400.0, gt=0)
    """No stake that could stay locked for longer, in seconds, after leaving: to accuse, to contest and to decide."""
    watch_s: float = Field(default=15.0, gt=0, le=600)
    """Seconds between looks for accusations on the chains where this wallet has a stake."""
    contest: bool = True
    """Contest accusations by itself: silence loses the stake, contesting costs gas alone."""
    vest_s: float = Field(default=7 * 86_400.0, ge=0)
    """No work whose last pay could wait for longer after its last credit, in seconds: for its window, and for a ruling
    of its validators."""
    validators: frozenset[NamedAddress] = Field(default=frozenset(), max_length=64)
    """Validators trusted to rule on this worker's last pay where a job vests it; such a job is declined where others
    could burn it alone."""
    margin_s: float = Field(default=60.0, ge=0)
    """Seconds between a task's last deadline and the end of redeeming."""
    redeem_at: PayText | None = None
    """Redeem a job's vouchers at this value; where none is given, when the job ends, in trouble, or at leaving."""
    redeem_before_s: float = Field(default=3600.0, gt=0)
    """Seconds before the end of a job's claims at which it redeems at the latest."""
    max_fee: float | None = Field(default=None, gt=0)
    """Gwei that the worker pays for a unit of gas at most, tip included, until claims end in REDEEM_BEFORE_S seconds;
    while gas is dearer it keeps its vouchers. By default it pays any price of gas."""
    leave_s: float = Field(default=120.0, ge=0)
    """How long the first signal waits for the verdicts of work in flight."""
    leave_market_s: float = Field(default=10.0, ge=0)
    """How long a market that does not answer is asked again when leaving."""
    upkeep_s: float = Field(default=10.0, gt=0)
    """Seconds between looks at the jobs' ends and at redeemable vouchers."""
    page: int | None = Field(default=None, ge=0, le=65535)
    """Port of this machine of a page with the worker's earnings and work (0: a free one); none without."""
    wait_s: float = Field(default=MAX_WAIT_S, ge=0, le=MAX_WAIT_S)
    """How long one poll may wait: as long again as in vain so far; 20 s while anything is in flight or owed."""

    @field_validator("dataset")
    @classmethod
    def _for_one_job(cls, folder: Path | None, given: ValidationInfo) -> Path | None:
        if folder is not None and len(given.data.get("jobs", ())) != 1:
            raise ValueError("rows of your own are for one job: name it with --for")
        return folder

    @field_validator("device")
    @classmethod
    def _one_for_own_rows(cls, device: str, given: ValidationInfo) -> str:
        if given.data.get("dataset") is not None and (device == ALL or "," in device):
            raise ValueError("rows of your own are computed on one card: name one")
        return device

    @property
    def alone(self) -> bool:
        """Whether it serves a single market, and will never serve another."""
        return len(self.origins) == 1 and not self.discover

    @property
    def origins(self) -> tuple[str, ...]:
        """Returns the named markets' addresses without a trailing slash; with `discover`, naming none is allowed."""
        first = () if self.discover and "market" not in self.model_fields_set else (self.market,)
        return tuple(dict.fromkeys(str(market).rstrip("/") for market in (*first, *self.markets)))

    @property
    def downloads(self) -> Path:
        return self.cache or self.data / "cache"

    @property
    def node(self) -> str | None:
        """Returns the address of the worker's own JSON-RPC node."""
        return str(self.rpc) if self.rpc else None

    @property
    def secret(self) -> str | None:
        """Returns the passphrase. Raises Refused if its file cannot be read."""
        if self.passphrase is not None:
            return self.passphrase.get_secret_value()
        return keystore.passphrase_in(self.passphrase_file) if self.passphrase_file else None
