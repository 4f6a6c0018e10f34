"""Features: each folder is one, with its tables, stages and routes. Delete it and its line here, and it is gone."""

from typing import Final

from requester.feature import Feature
from requester.features.adaptive import AdaptiveFeature
from requester.features.answer_cache import AnswerCacheFeature
from requester.features.api_tokens import ApiTokensFeature
from requester.features.auditors import AuditorsFeature
from requester.features.audits import AuditsFeature
from requester.features.backup import BackupFeature
from requester.features.batching import BatchingFeature
from requester.features.body_limits import BodyLimitsFeature
from requester.features.chain_door import ChainDoorFeature
from requester.features.claims import ClaimsFeature
from requester.features.clock_steps import ClockStepsFeature
from requester.features.consents import ConsentsFeature
from requester.features.continuing import ContinuingFeature
from requester.features.coverage import CoverageFeature
from requester.features.described_api import DescribedApiFeature
from requester.features.disputes import HearingsFeature
from requester.features.drift import DriftFeature
from requester.features.evaluations import EvaluationsFeature
from requester.features.event_streams import EventStreamsFeature
from requester.features.explanations import ExplanationsFeature
from requester.features.fast_routes import FastRoutesFeature
from requester.features.fault_reports import FaultReportsFeature
from requester.features.health import HealthFeature
from requester.features.labels import LabelsFeature
from requester.features.late import LateFeature
from requester.features.ledger import LedgerFeature
from requester.features.leftovers import LeftoversFeature
from requester.features.log import LogFeature
from requester.features.loss_change import LossChangeFeature
from requester.features.many_machines import ManyMachinesFeature
from requester.features.metrics import MetricsFeature
from requester.features.owner_key import OwnerKeyFeature
from requester.features.pages import PagesFeature
from requester.features.part_merges import PartMergesFeature
from requester.features.part_troubles import PartTroublesFeature
from requester.features.planted import PlantedFeature
from requester.features.price_guide import PriceGuideFeature
from requester.features.private import PrivateFeature
from requester.features.proven import ProvenFeature
from requester.features.rate_limits import RateLimitsFeature
from requester.features.ready_jobs import ReadyJobsFeature
from requester.features.reconcile import ReconcileFeature
from requester.features.records import RecordsFeature
from requester.features.reputation import ReputationFeature
from requester.features.request_log import RequestLogFeature
from requester.features.row_checks import RowChecksFeature
from requester.features.secure_sums import SecureSumsFeature
from requester.features.slow_clients import SlowClientsFeature
from requester.features.spending import SpendingFeature
from requester.features.stakes import StakesFeature
from requester.features.tolerance import ToleranceFeature
from requester.features.top_ups import TopUpsFeature
from requester.features.tracing import TracingFeature
from requester.features.vesting import VestingFeature
from requester.features.webhooks import WebhooksFeature
from requester.features.windows import WindowsFeature

FEATURES: Final[tuple[Feature, ...]] = (
    AnswerCacheFeature(),
    BatchingFeature(),
    FastRoutesFeature(),
    PartTroublesFeature(),
    HealthFeature(),
    ClockStepsFeature(),
    AuditsFeature(),
    ReputationFeature(),
    ProvenFeature(),
    AdaptiveFeature(),
    EvaluationsFeature(),
    RowChecksFeature(),
    ReadyJobsFeature(),
    PrivateFeature(),
    DriftFeature(),
    PartMergesFeature(),
    ToleranceFeature(),
    WindowsFeature(),
    LossChangeFeature(),
    AuditorsFeature(),
    HearingsFeature(),
    PlantedFeature(),
    StakesFeature(),
    VestingFeature(),
    LateFeature(),
    FaultReportsFeature(),
    OwnerKeyFeature(),
    SecureSumsFeature(),
    ClaimsFeature(),
    CoverageFeature(),
    ConsentsFeature(),
    LedgerFeature(),
    LogFeature(),
    ManyMachinesFeature(),
    ContinuingFeature(),
    ExplanationsFeature(),
    ApiTokensFeature(),
    BackupFeature(),
    RecordsFeature(),
    LeftoversFeature(),
    SlowClientsFeature(),
    BodyLimitsFeature(),
    RateLimitsFeature(),
    ChainDoorFeature(),
    EventStreamsFeature(),
    DescribedApiFeature(),
    MetricsFeature(),
    WebhooksFeature(),
    SpendingFeature(),
    PriceGuideFeature(),
    PagesFeature(),
    TracingFeature(),
    TopUpsFeature(),
    LabelsFeature(),
    ReconcileFeature(),
    RequestLogFeature(),
)
"""In the order in which they are asked (requester.feature). Imported by the wiring and many_machines.queue alone."""
