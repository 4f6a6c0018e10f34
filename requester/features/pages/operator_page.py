"""The operator's page: readiness, stages, database, chain sender, disk, failures, versions."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from gradmarket.market.money import TokenUnit
from requester.context import Context
from requester.features.metrics import tallies
from requester.features.pages import overview
from requester.store.work import RowReader

SHOWN: Final = ("gradmarket", "torch", "fastapi", "sqlalchemy", "web3")


@dataclass(frozen=True, slots=True)
class OperatorPage:
    """`disk_free` and `disk` are bytes of the data folder's disk; `wei` is the chain sender's gas money."""

    parts: Mapping[str, str]
    lags: Mapping[str, float]
    failures: Mapping[str, float]
    streams: float
    polls: float
    sender: str
    wei: float | None
    tokens: str
    disk_free: int
    disk: int
    database: str
    versions: Mapping[str, str]


def build_operator_page(context: Context, reader: RowReader, parts: Mapping[str, str]) -> OperatorPage:
    disk, meters = shutil.disk_usage(context.settings.data), context.meters
    sender = context.chain_worker.sender
    reached = not parts["chain"]
    ledger = context.ledger
    samples = (sample for family in meters.failures.collect() for sample in family.samples)
    counted = (one for one in samples if one.name.endswith("_total") and one.value)
    return OperatorPage(
        parts={name: trouble or "ok" for name, trouble in parts.items()},
        lags=tallies.compute_stage_lags(reader, context.clock()),
        failures={one.labels["stage"]: one.value for one in counted},
        streams=meters.registry.get_sample_value("gradmarket_event_streams_open") or 0.0,
        polls=meters.registry.get_sample_value("gradmarket_long_polls_open") or 0.0,
        sender=sender,
        wei=ledger.gas_money(sender) / 1e18 if reached else None,
        tokens=TokenUnit.of(context.chain_facts).text(ledger.balance(sender)) if reached else "not known",
        disk_free=disk.free,
        disk=disk.total,
        database=overview.find_database_kind(reader),
        versions={"python": sys.version.split()[0]} | {name: version(name) for name in SHOWN},
    )
