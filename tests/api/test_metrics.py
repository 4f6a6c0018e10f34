"""`/metrics` counts the service's requests; every expression of the dashboard names an existing metric."""

import json
import re
import shutil
import subprocess
import threading
from pathlib import Path

import httpx
import pytest
import yaml
from blake3 import blake3
from prometheus_client.parser import text_string_to_metric_families

from requester.notifier import ended_topic
from tests.patience import wait_for_end, wait_until

OPS = Path(__file__).parents[2] / "ops"
DASHBOARD, PROMETHEUS = OPS / "grafana" / "gradmarket.json", OPS / "prometheus"
PROMTOOL = shutil.which("promtool")
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}


def value(service, name: str, **labels: str) -> float:  # type: ignore[no-untyped-def]
    text = service.anyone.get("/metrics").text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return 0.0


def test_requests_are_counted_by_route_and_status(service) -> None:  # type: ignore[no-untyped-def]
    found = {"method": "GET", "route": "/v1/jobs/{job_id}", "status": "404"}
    before = value(service, "gradmarket_request_seconds_count", **found)
    for _ in range(3):
        service.anyone.get("/v1/jobs/nowhere")
    assert value(service, "gradmarket_request_seconds_count", **found) == before + 3


def test_made_up_paths_and_methods_have_one_line_for_all(service) -> None:  # type: ignore[no-untyped-def]
    odd = ("PROPFIND", "REPORT", "MKCOL")
    for index, method in enumerate(odd):
        service.anyone.request(method, f"/v1/made/up/{index}")
        assert service.anyone.request(f"MADE{index}", f"/v1/made/up/{index}").status_code == 400
    text = service.anyone.get("/metrics").text
    assert 'method="other",route="none",status="404"' in text
    assert not any(name in text for name in (*odd, "MADE"))
    assert "made/up" not in text


def test_bytes_are_counted_in_both_directions(service) -> None:  # type: ignore[no-untyped-def]
    data = b"counted" * 1000
    digest = _digest(data)
    route = "/v1/blobs/{digest}"
    up, down = (value(service, "gradmarket_http_bytes_total", direction=way, route=route) for way in ("up", "down"))
    service.requester.put(f"/v1/blobs/{digest}", content=data)
    service.requester.get(f"/v1/blobs/{digest}")
    assert value(service, "gradmarket_http_bytes_total", direction="up", route=route) == up + len(data)
    assert value(service, "gradmarket_http_bytes_total", direction="down", route=route) >= down + len(data)


def test_a_poll_that_waits_is_open(service) -> None:  # type: ignore[no-untyped-def]
    address, worker = service.worker()
    ask = {"determinism_class": "cpu", "capacity": 1, "wait_s": 25}
    poll = threading.Thread(target=lambda: worker.post("/v1/work/poll", json=ask))
    poll.start()
    wait_until(lambda: value(service, "gradmarket_long_polls_open") == 1)
    service.context.notifier.notify([ended_topic(address)])
    wait_for_end(poll)
    assert value(service, "gradmarket_long_polls_open") == 0


def test_every_answer_has_an_id(service) -> None:  # type: ignore[no-untyped-def]
    answers: list[httpx.Response] = [service.anyone.get("/v1/health") for _ in range(2)]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 2
    assert "x-request-id" in service.anyone.get("/v1/jobs/nowhere").headers


def test_the_dashboard_asks_for_metrics_that_exist(service) -> None:  # type: ignore[no-untyped-def]
    text = service.anyone.get("/metrics").text
    families = [family for family in text_string_to_metric_families(text) if not family.name.endswith("_created")]
    known = {family.name + suffix: family for family in families for suffix in SUFFIXES[family.type]}
    asked: set[str] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            names = set(re.findall(r"gradmarket_\w+", target["expr"]))
            assert names, (panel["title"], "asks for nothing of ours")
            assert names <= known.keys(), (panel["title"], names - known.keys())
            asked |= {known[name].name for name in names}
    assert asked == {family.name for family in known.values()}, "all of them are shown"


def test_alarms_ask_for_metrics_that_exist(service) -> None:  # type: ignore[no-untyped-def]
    text = service.anyone.get("/metrics").text
    known = {family.name + suffix for family in text_string_to_metric_families(text) for suffix in ("", "_total")}
    rules = yaml.safe_load((PROMETHEUS / "alarms.yml").read_text())["groups"][0]["rules"]
    asked = {name for rule in rules for name in re.findall(r"gradmarket_\w+", rule["expr"])}
    assert len(rules) >= 5
    assert asked <= known


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_alarms_rise_on_what_they_are_for_and_not_before() -> None:
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", str(PROMETHEUS / "alarms_test.yml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _digest(data: bytes) -> str:
    return "blake3:" + blake3(data).hexdigest()
