"""Features: each folder or file is one. Delete it and its line here, and it is gone."""

from typing import Final

from worker.feature import WorkerFeature
from worker.features.consents import PayoutConsentsFeature
from worker.features.discovery import DiscoveryFeature
from worker.features.disputes import DisputesFeature
from worker.features.fault_reports import StepFaultsFeature
from worker.features.key_care import KeyCareFeature
from worker.features.machine_check import MachineCheckFeature
from worker.features.owner_page import OwnerPageFeature
from worker.features.private import HeldRowsFeature
from worker.features.redeem import RedeemFeature
from worker.features.secure_sums import MaskedAnswersFeature
from worker.features.stakes import StakingFeature
from worker.features.standings import StandingsFeature
from worker.features.verify import VerifyFeature
from worker.features.vesting import LockedPayFeature
from worker.features.watchtower import WatchtowerFeature
from worker.features.windows import WindowStatesFeature
from worker.features.work_schedule import WorkScheduleFeature

FEATURES: Final[tuple[WorkerFeature, ...]] = (
    StandingsFeature(),
    KeyCareFeature(),
    RedeemFeature(),
    WorkScheduleFeature(),
    MachineCheckFeature(),
    OwnerPageFeature(),
    StakingFeature(),
    LockedPayFeature(),
    WatchtowerFeature(),
    DisputesFeature(),
    DiscoveryFeature(),
    PayoutConsentsFeature(),
    WindowStatesFeature(),
    StepFaultsFeature(),
    VerifyFeature(),
    HeldRowsFeature(),
    MaskedAnswersFeature(),
)
"""In the order of their calls (worker.feature). Imported by worker.run and the commands alone."""
