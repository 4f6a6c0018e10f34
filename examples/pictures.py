"""The pictures of this folder, made anew: each example trained on a market of this machine, and its curve drawn.

    python examples/pictures.py [NAME …]

A service on a free port and three workers are started for it, and ended with it; each task is voted on by all three.
All five take eight minutes of processor time. Without names every picture is made.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import character
import lora
import tabular

from gradmarket import Market, TrainingJob
from gradmarket.demo import service
from gradmarket.demo.children import DemoProcesses

FOLDER: Final = Path(__file__).parent
WORKERS: Final = 3


def posted(file: str) -> TrainingJob:
    """A job of this folder, posted as the README has it, and watched to its end."""
    command = [sys.executable, "-m", "gradmarket", "job", "submit", str(FOLDER / file), "--yes"]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    with Market() as market:
        job = market.job(answer.stdout.strip())
        job.watch()
    return job


PICTURES: Final[dict[str, tuple[str, Callable[[], TrainingJob]]]] = {
    "digits_mlp": ("Handwritten digits, an MLP by LAMB", partial(posted, "digits_mlp.json")),
    "digits": ("Handwritten digits, a CNN by AdamW, until 97 %", partial(posted, "digits.json")),
    "character": ("Python's sources, a GPT by 20 local steps a round", partial(character.main, 20)),
    "lora": ("A frozen GPT-2 learns to count down by LoRA", partial(lora.main, 20)),
    "tabular": ("Wines in Parquet, an MLP by AdamW", partial(tabular.main, 20)),
}
"""Title and run of each picture, by its name."""


@contextmanager
def market_here(folder: Path) -> Iterator[None]:
    """A market whose folder is the one that this process's environment names."""
    children = DemoProcesses(folder / "logs")
    try:
        place = service.start_service(children, folder / "data").place
        for number in range(WORKERS):
            options = ["--market", place.url, "--data", str(folder / f"worker-{number}")]
            children.start(f"worker-{number}", ["-m", "gradmarket", "worker", "run", *options])
        os.environ["GRADMARKET_DATA"] = str(folder / "data")
        yield
    finally:
        children.end()
        service.stop_chain(folder / "data")


def main(names: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, market_here(Path(folder)):
        for name in names:
            title, run = PICTURES[name]
            with Market() as market:
                market.job(run().id).plot(title).save(FOLDER / "pictures" / f"{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:] or list(PICTURES))
