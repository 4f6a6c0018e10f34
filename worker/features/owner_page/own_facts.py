"""The facts of the worker's own folder: earned, in hand, rejected, and not yet paid by a voucher."""

import fcntl
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Final

from pydantic import ValidationError

from gradmarket.market.errors import NotFound
from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Address, Hash
from graphdoc.runner.driver import CardLoad, Management
from worker import durable
from worker.features.owner_page.record_tail import RecordTail, load_newest_record
from worker.money import known_chains
from worker.money.account_store import BOOK, AccountStore, JobAccount, convert_to_amount
from worker.protocol import records
from worker.protocol.in_flight import InFlight
from worker.protocol.records import ReplicaRecord

HOUR_S: Final = 3_600.0
DAY_S: Final = 86_400.0
REJECTIONS: Final = 20
"""Newest rejections of the last 24 hours that are shown; `gradmarket wallet show` has all of them."""
SMALLEST: Final = TokenUnit("of the smallest unit", 0)
"""The unit of amounts of a chain whose token is unknown."""


def in_use(folder: Path) -> bool:
    """Returns whether a worker holds the folder's lock: a shared lock is tried, and given back at once."""
    try:
        with (folder / durable.LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@dataclass(frozen=True)
class Earnings:
    """Sums in one token on one chain, in its smallest unit. `today` is since midnight on this machine."""

    chain_id: int
    symbol: str
    decimals: int
    total: str
    today: str
    last_hour: str
    redeemed: str
    per_kwh: str | None = None
    """Earned in the last hour, over the kilowatt-hours that the cards draw in one, as seen during looks; None where no
    card reports its watts."""

    def text(self, amount: str) -> str:
        return TokenUnit(self.symbol, self.decimals).text(amount)


@dataclass(frozen=True)
class InHand:
    """A replica that has no final verdict. `since` and `due` in Unix seconds, `pay` in the token's smallest unit."""

    job: str
    replica: str
    round: int
    doing: str
    since: float
    due: float
    pay: str
    pay_text: str


@dataclass(frozen=True)
class RejectedAnswer:
    """`at` in Unix seconds; `evidence` is the address of the verdict's published evidence."""

    at: float
    job: str
    task: str
    reason: str
    evidence: str


@dataclass(frozen=True)
class OwnFacts:
    """All facts of the folder. `running`: a worker has locked the folder. `at` in Unix seconds."""

    address: Address
    folder: str
    at: float
    running: bool
    accepted: int
    rejected: int
    unpaid: int
    earnings: tuple[Earnings, ...]
    in_hand: tuple[InHand, ...]
    rejections: tuple[RejectedAnswer, ...]
    grievances: tuple[str, ...]
    cards: tuple[CardLoad, ...] = ()
    """The present load of the cards on which this worker computes, by device and name."""


class OwnFolder:
    """Reads a worker's folder repeatedly; each time only the records added since."""

    def __init__(self, folder: Path) -> None:
        """Opens the folder. Raises NotFound where no worker has run in it."""
        self._folder = folder
        self._tails: dict[Path, RecordTail] = {}
        self._management = Management()
        self._watts: deque[tuple[float, float]] = deque()
        """Unix time and the draw of its cards then."""
        owner = AccountStore(folder / BOOK).wallet
        if owner is None:
            raise NotFound(f"no worker has run in {folder}", "name the worker's folder with --data")
        self.address: Final[Address] = owner

    @property
    def accounts(self) -> tuple[JobAccount, ...]:
        return AccountStore(self._folder / BOOK).accounts

    def markets(self) -> dict[str, int]:
        """Returns the addresses of the markets that sent each job's newest verdict, with the chain that it pays on.

        Before the first verdict these are the markets that the worker joined.
        """
        newest = [(account, load_newest_record(self._build_records_path(account))) for account in self.accounts]
        paid = {record.market: account.chain_id for account, record in newest if record is not None}
        return paid or known_chains.load_joined_markets(self._folder)

    def look(self, now: float) -> OwnFacts:
        """Reads the folder at `now`, in Unix seconds."""
        store = AccountStore(self._folder / BOOK)
        cards = tuple(self._list_cards())
        newest = [(account, self._load_newest_records(account, now - DAY_S)) for account in store.accounts]
        verdicts = sorted((record for _, kept in newest for record in kept), key=lambda record: record.at)
        last = {record.lease.replica: record for record in verdicts}  # without those that an audit found right later
        rejected = [record for record in reversed(last.values()) if record.rejected]
        rejections = (
            RejectedAnswer(
                record.at,
                record.lease.job,
                record.lease.task,
                record.verdict.reason,
                f"{record.market}/v1/jobs/{record.lease.job}/tasks/{record.lease.task}",
            )
            for record in rejected[:REJECTIONS]
        )
        return OwnFacts(
            address=self.address,
            folder=str(self._folder),
            at=now,
            running=in_use(self._folder),
            accepted=sum(account.accepted for account in store.accounts),
            rejected=sum(account.rejected for account in store.accounts),
            unpaid=sum(account.unpaid for account in store.accounts),
            earnings=tuple(self._sum_earnings(newest, now, self._average_watts(cards, now))),
            in_hand=tuple(self._in_hand(store)),
            rejections=tuple(rejections),
            grievances=tuple(line for _, line in store.grievances()),
            cards=cards,
        )

    def _list_cards(self) -> Iterator[CardLoad]:
        try:
            cards: dict[str, str] = json.loads((self._folder / durable.CARDS).read_bytes())
        except (FileNotFoundError, ValueError):  # none, or spoilt by a power cut
            return
        for device, uuid in cards.items():
            if (load := self._management.read_load(uuid)) is not None:
                yield replace(load, name=f"{device} ({load.name})")

    def _average_watts(self, cards: Sequence[CardLoad], now: float) -> float:
        """Returns the average draw of its cards over the looks in the last hour; 0 where none reports it."""
        drawn = [card.watts for card in cards if card.watts is not None]
        if drawn:
            self._watts.append((now, sum(drawn)))
        while self._watts and self._watts[0][0] < now - HOUR_S:
            self._watts.popleft()
        return fmean(watts for _, watts in self._watts) if self._watts else 0.0

    def _load_newest_records(self, account: JobAccount, since: float) -> list[ReplicaRecord]:
        path = self._build_records_path(account)
        return self._tails.setdefault(path, RecordTail(path)).since(since)

    def _build_records_path(self, account: JobAccount) -> Path:
        return records.file_of(self._folder, Hash(account.instance), account.chain_job)

    def _sum_earnings(
        self, newest: list[tuple[JobAccount, list[ReplicaRecord]]], now: float, watts: float
    ) -> Iterator[Earnings]:
        sums: dict[tuple[int, TokenUnit], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        for account, kept in newest:
            earned = sums[account.chain_id, self.money(account)]
            earned[0] += convert_to_amount(account.earned, account)
            earned[1] += _sum_earned_since(account, kept, midnight)
            earned[2] += _sum_earned_since(account, kept, now - HOUR_S)
            earned[3] += convert_to_amount(account.received, account)
        for (chain_id, money), amounts in sums.items():
            per_kwh = str(int(amounts[2] * Fraction(1000) / Fraction(watts))) if watts else None
            total, today, last_hour, redeemed = map(str, amounts)
            yield Earnings(chain_id, money.symbol, money.decimals, total, today, last_hour, redeemed, per_kwh)

    def money(self, account: JobAccount) -> TokenUnit:
        try:
            return TokenUnit.of(known_chains.load_chain_facts(self._folder, Hash(account.instance)))
        except NotFound:
            return SMALLEST

    def _in_hand(self, store: AccountStore) -> Iterator[InHand]:
        for path in sorted((self._folder / "held").glob("*/*.json")):
            try:
                held = InFlight.model_validate_json(path.read_bytes())
            except (FileNotFoundError, ValidationError):  # the worker has just removed it, or a crash cut it
                continue
            named = held.instance, held.lease.offer.job
            account = next((one for one in store.accounts if named == (one.instance, one.chain_job)), None)
            if held.open and account is not None:
                doing = "accepted, to be sent" if held.promised else "sealed, waits for the verdict"
                if held.prepared is None:
                    doing = "computing"
                elif held.uploaded or held.sent:
                    doing = "sent, waits to be paid"
                pay = convert_to_amount(held.units, account)
                yield InHand(
                    job=held.lease.job,
                    replica=held.replica,
                    round=held.lease.offer.round,
                    doing=doing,
                    since=held.taken_at,
                    due=held.due_at,
                    pay=str(pay),
                    pay_text=self.money(account).text(pay),
                )


def _sum_earned_since(account: JobAccount, kept: Iterable[ReplicaRecord], since: float) -> int:
    return sum(
        convert_to_amount(record.lease.offer.price, account) for record in kept if record.paid and record.at >= since
    )
