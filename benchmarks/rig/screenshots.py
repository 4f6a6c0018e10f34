"""Pictures of the web page over a running market with two cheats, into the folder that is named (default: docs)."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import httpx
from playwright.sync_api import Browser, ViewportSize

from benchmarks.rig.browser import chromium
from benchmarks.rig.patience import PATIENCE_S
from gradmarket.demo import service, workers
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.workers import JOB

SPEC: Final[dict[str, Any]] = {**JOB, "rounds": 16, "stop": []}
SIZE: Final[ViewportSize] = {"width": 1000, "height": 1080}
LIMIT_MS: Final = 300_000


def main(target: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="gradmarket-screenshots-"))
    children = DemoProcesses(folder / "logs")
    try:
        served = service.start_service(children, folder / "service")
        token = (served.data / "keys" / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.post(f"{served.place.url}/v1/jobs", json=SPEC, headers=headers, timeout=PATIENCE_S)
        posted = answer.raise_for_status().json()
        workers.start_workers(children, served.place.url, folder / "workers")
        with chromium() as browser:
            _take(browser, served.place.url, posted["id"], target)
    finally:
        children.end()
        service.stop_chain(folder / "service")
        shutil.rmtree(folder, ignore_errors=True)


def _take(browser: Browser, url: str, job: str, target: Path) -> None:
    page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
    page.goto(f"{url}/jobs/{job}")
    page.get_by_text("Batch 0 paid").first.wait_for(timeout=LIMIT_MS)
    page.get_by_text("Round 9 closed").wait_for(timeout=LIMIT_MS)
    page.screenshot(path=target / "page-job.png")
    page.locator("td.accepted a").first.click()
    page.get_by_text("proven by this browser").wait_for(timeout=LIMIT_MS)
    page.screenshot(path=target / "page-story.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
