"""The docs site: it builds, asks nobody else for anything, leaves no page out, and its pages work as they stand."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradmarket.cli import COMMANDS
from gradmarket.demo.service import Service
from tests.e2e.snippets import Reader
from tests.lanes import FULL

pytestmark = FULL

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_page_is_in_the_menu(site: Path) -> None:
    menu = re.findall(r'href="([^"#]+)" class="md-nav__link', (site / "index.html").read_text())
    named = {Path(place.rstrip("/")) for place in menu}
    assert [page for page in PAGES if page != Path("index") and page not in named] == []


def test_the_docs_site_loads_nothing_from_other_hosts(site: Path) -> None:
    tags = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*>")
    loaded = [
        tag for path in site.rglob("*.html") for tag in tags.findall(path.read_text()) if 'rel="canonical"' not in tag
    ]
    assert len(loaded) > 100
    assert [tag for tag in loaded if re.search(r'(?:src|href)="(?:https?:)?//', tag)] == []


def test_the_reference_has_every_command_class_and_operation(site: Path) -> None:
    pages = {name: (site / "reference" / name / "index.html").read_text() for name in ("cli", "python", "rest")}
    classes, operations = (
        ("Market", "TrainingJob", "TensorBoard", "load_into"),
        ("POST /v1/jobs", "list_rounds", "GET /v1/jobs/{job_id}/coverage"),
    )
    assert [name for name in COMMANDS if f"gradmarket {name}" not in pages["cli"]] == []
    assert [name for name in classes if name not in pages["python"]] == []
    assert [name for name in operations if name not in pages["rest"]] == []


Follow = Callable[..., list[str]]


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Follow]:
    readers: list[Reader] = []

    def follow_page(page: str, **environment: str) -> list[str]:
        readers.append(Reader(tmp_path, **environment))
        return readers[-1].follow(DOCS / page)

    yield follow_page
    for reader in readers:
        reader.leave()


def test_the_tutorial(follow: Follow, tmp_path: Path) -> None:
    said = follow("tutorial.md")
    assert "held-out accuracy" in said[1]
    assert "images" in said[2]
    assert "GRAD" in said[3]
    assert (tmp_path / "first" / "model.safetensors").is_file()


def test_ones_own_data(follow: Follow, town: Service) -> None:
    assert "finished: all rounds are done" in follow("howto/own-data.md", GRADMARKET_DATA=str(town.data))[-1]


def test_ones_own_model(follow: Follow, town: Service) -> None:
    assert "rounds done 3/3" in follow("howto/own-model.md", GRADMARKET_DATA=str(town.data))[-1]


def test_running_a_market(follow: Follow, tmp_path: Path) -> None:
    said = follow("howto/run-a-market.md")
    assert "alice" in said[2]
    assert (tmp_path / "copy").is_dir()


def test_earning(follow: Follow, town: Service, tmp_path: Path) -> None:
    page = (DOCS / "howto" / "earn.md").read_text().replace("http://127.0.0.1:8700", town.place.url)
    (tmp_path / "earn.md").write_text(page)
    said = follow(str(tmp_path / "earn.md"))
    assert (tmp_path / "wallet-copy.key").stat().st_size
    assert said[-1]
