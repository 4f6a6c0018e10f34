"""This worker's records of secure aggregations: a file for each round, written before its message is sent.

A holder that forgot its message could send another, and a party with both could take the masks off. So a restarted
worker continues from its file, and a round whose survivors it signed is recorded for good: it signs one set a round,
over all attempts, so no two sets of one round have a quorum.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums.holder import HolderState, HolderStep, Seat
from gradmarket.market.features.secure_sums.signed import NO_KEYS
from gradmarket.market.features.secure_sums.sum_messages import HolderKeysMessage, HolderNumber, SetField
from gradmarket.market.fields import DeferredModel, HashField
from graphdoc.encoding import Bytes
from worker import durable

Step = Annotated[int, Field(ge=1, le=5)]


class SecureRecord(DeferredModel):
    """A holder's state in an attempt at a round's sum; `entropy` gives all of its secrets. The rest is HolderState."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    job: str
    round: int
    attempt: int
    parameters: HashField
    start: HashField
    """The digest of the round's parameters, and of the inputs of its vector (secure_sums.job_sum.start_of)."""
    size: int
    """The number of its vector's elements."""
    entropy: HashField
    step: Step
    said: str
    """Its last message, as JSON."""
    receipt: str = ""
    """From step 3 on: its receipt, in hexadecimal (secure_sums.job_sum.build_receipt)."""
    keys: tuple[HolderKeysMessage, ...] = ()
    channels: dict[HolderNumber, HashField] = Field(default_factory=dict)
    shares: dict[HolderNumber, tuple[HashField, HashField]] = Field(default_factory=dict)
    shown: HashField = NO_KEYS
    sharers: SetField | None = None
    survivors: SetField | None = None

    @property
    def signed(self) -> bool:
        return self.step >= HolderStep.SIGNED

    def state(self, seat: Seat) -> HolderState:
        keys = {message.holder: message for message in self.keys}
        shown, sets = self.shown, (self.sharers or b"", self.survivors or b"")
        return HolderState(seat, HolderStep(self.step), keys, dict(self.channels), dict(self.shares), shown, *sets)


def record_of(before: SecureRecord, state: HolderState, message: BaseModel, receipt: bytes = b"") -> SecureRecord:
    """Returns the record of the next state, with its message."""
    return SecureRecord.model_validate(
        before.model_dump()
        | {
            "step": int(state.step),
            "said": message.model_dump_json(),
            "receipt": receipt.hex() or before.receipt,
            "keys": tuple(state.keys.values()),
            "channels": dict(state.channels),
            "shares": dict(state.shares),
            "shown": state.shown,
            "sharers": state.sharers or None,
            "survivors": state.survivors or None,
        }
    )


@dataclass(frozen=True)
class SecureFolder:
    """One record a round, and the masked vector until its sum is there. Names are hashes: the market chooses them."""

    folder: Path

    def load(self, job: str, number: int) -> SecureRecord | None:
        """Returns the round's record. A record that a power cut left incomplete was never followed by a message."""
        try:
            return SecureRecord.model_validate_json(self._build_file_path(job, number, "json").read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def save(self, record: SecureRecord, vector: Bytes | None = None) -> None:
        """Stores the record. Must be called before its message is sent."""
        if vector is not None:
            durable.write_file_atomically(self._build_file_path(record.job, record.round, "vector"), vector)
        if record.signed:
            durable.write_file_atomically(
                self._build_mark_path(record.job), str(max(record.round, self.signed(record.job))).encode()
            )
        durable.write_file_atomically(
            self._build_file_path(record.job, record.round, "json"), record.model_dump_json().encode()
        )

    def vector(self, record: SecureRecord) -> bytes:
        return self._build_file_path(record.job, record.round, "vector").read_bytes()

    def signed(self, job: str) -> int:
        """Returns the newest round of which this worker signed survivors; -1 where there is none.

        Raises Refused where the mark cannot be read: the worker takes no further part.
        """
        try:
            return int(self._build_mark_path(job).read_bytes())
        except FileNotFoundError:
            return NONE
        except ValueError as error:
            raise Refused(f"which rounds of job {job} this worker has signed cannot be read") from error

    def forget(self, job: str, number: int) -> None:
        """Forgets a round whose sum is there and paid: its number stays in the mark."""
        for kind in ("vector", "json"):
            self._build_file_path(job, number, kind).unlink(missing_ok=True)

    def _build_file_path(self, job: str, number: int, kind: str) -> Path:
        return self.folder / f"{blake3(f'{job} {number}'.encode()).hexdigest()[:32]}.{kind}"

    def _build_mark_path(self, job: str) -> Path:
        return self.folder / f"{blake3(job.encode()).hexdigest()[:32]}.signed"


NONE: Final = -1
