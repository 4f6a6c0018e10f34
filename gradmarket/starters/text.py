"""Trains a small GPT on text, character by character, on the market.

    python train.py [TEXT.txt …]

Without a file it trains on the sources of Python's own json package. Each task takes local steps, so that little is
sent over the workers' lines. Rounds, price, optimizer and the rest stand in settings.json beside this script.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from gradmarket import Market
from gradmarket.market.errors import MarketError
from gradmarket.mistakes import print_error
from gradmarket.runner.architectures import gpt
from gradmarket.user_files import load_json_object

HERE = Path(__file__).parent
LENGTH = 32


def load_text(files: list[str]) -> str:
    paths = [Path(file) for file in files] or sorted(Path(json.__file__).parent.glob("*.py"))
    try:
        return "".join(path.read_text(encoding="utf-8") for path in paths)
    except UnicodeDecodeError:
        sys.exit(f"error: {', '.join(map(str, paths))}: not all of it is text in UTF-8: name other files")


def cut_character_windows(written: str) -> tuple[torch.Tensor, torch.Tensor, int]:
    """(int64[rows, LENGTH] characters, the same moved on by one, how many characters there are)."""
    known = sorted(set(written))
    codes = np.searchsorted(known, list(written)).astype(np.int64)
    rows = (len(codes) - 1) // LENGTH
    if rows < 2:
        sys.exit(f"error: {len(codes)} characters are too few: name files of {2 * LENGTH + 1} or more")
    x, y = (codes[start : start + rows * LENGTH].reshape(rows, LENGTH) for start in (0, 1))
    return torch.from_numpy(x), torch.from_numpy(y), len(known)


def main(files: list[str]) -> None:
    torch.manual_seed(0)
    x, y, characters = cut_character_windows(load_text(files))
    model = gpt.build({"depth": 2, "width": 64, "heads": 4}, (LENGTH,), characters)
    settings = load_json_object(str(HERE / "settings.json"), "rounds", "price")
    with Market() as market:
        job = market.train(model, gpt.OBJECTIVE, (x, y), **settings)
        print(f"job {job.id}")
        job.watch()
        job.load_into(model)
        print(f"held-out loss {job.metrics['loss']:.3f}; a guess has {np.log(characters):.3f}")
    save_file(model.state_dict(), HERE / "model.safetensors")


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit()
    try:
        main(sys.argv[1:])
    except (MarketError, OSError) as error:
        sys.exit(print_error(error, "python train.py"))
    except KeyboardInterrupt:
        print("stopped: a job that was posted goes on, and `gradmarket job list` shows it", file=sys.stderr)
        sys.exit(130)
