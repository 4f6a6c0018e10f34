"""First attempts of newcomers are taken, or refused in one sentence with the right form, before anything is sent: the
market of these tests does not exist."""

import json
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gradmarket import Market
from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.money import LOCAL_TOKEN
from gradmarket.sdk.job_handle import TrainingJob
from gradmarket.sdk.planning import Asked, prepare_job
from gradmarket.sdk.rows import load_rows
from tests.kit.late_module import LateModule
from tests.kit.torch_tests import TRACING

pytestmark = TRACING
sparse: Any = LateModule("scipy.sparse")
X = np.random.default_rng(0).standard_normal((24, 8)).astype(np.float32)
Y = np.arange(24) % 4
TX = torch.tensor(X)
LONGEST_TRACE = 40
"""Lines that a traceback of a refusal has: the way from the script to the sentence, and no more."""


@pytest.fixture(scope="module")
def nowhere() -> Iterator[Market]:
    with Market("http://127.0.0.1:9", "no token") as market:
        yield market


def refusal(
    market: Market, module: Any = None, loss: Any = functional.cross_entropy, dataset: Any = (X, Y), **rest: Any
) -> str:
    """The sentence, after a look that no cause of it is shown above."""
    fields: dict[str, Any] = {"rounds": 1, "price": "1000", "rows": 8, **rest}
    with pytest.raises(Refused) as refused:
        market.train(nn.Linear(8, 4) if module is None else module, loss, dataset, **fields)
    shown = "".join(traceback.format_exception(refused.value))
    assert "direct cause" not in shown
    assert "During handling" not in shown
    assert shown.count("\n") <= LONGEST_TRACE
    return str(refused.value)


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.LazyLinear(4)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x)


class Locked(nn.Linear):
    def __init__(self) -> None:
        super().__init__(8, 4)
        self.lock = threading.Lock()


class Misspelt(nn.Linear):
    def forward(self, x: Tensor) -> Any:
        return self.linaer(x)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    SCRIPTED, TRACED = torch.jit.script(nn.Linear(8, 4)), torch.jit.trace(nn.Linear(8, 4), TX[:2])  # type: ignore[no-untyped-call]
MODULES: dict[str, tuple[Any, str]] = {
    "scripted": (SCRIPTED, "compiled by torch.jit: give the nn.Module that it was made of"),
    "traced": (TRACED, "compiled by torch.jit: give the nn.Module that it was made of"),
    "lazy": (Lazy(), r"linear.weight has no shape yet: call the module on a batch first, module\(x\[:2\]\)"),
    "a class": (nn.Linear, r"Linear is a class: give an instance, such as Linear\(…\)"),
    "a function": (lambda x: x, "a function is no nn.Module"),
    "no values": (nn.Linear(8, 4, device="meta"), "weight is on the meta device and has no values: .*to_empty"),
    "uncopyable": (Locked(), "Locked cannot be copied: .*lock.*: keep it outside of the module"),
    "a fault of its own": (Misspelt(8, 4), r"no attribute 'linaer'.*test_first_mistakes.py, line \d+, in forward"),
    "too narrow": (nn.Linear(7, 4), "must have same reduction dim"),
}


@pytest.mark.parametrize(("module", "said"), MODULES.values(), ids=MODULES.keys())
def test_a_module_that_cannot_be_published_is_refused_with_what_to_give(
    nowhere: Market, module: Any, said: str
) -> None:
    assert_sentence(said, refusal(nowhere, module))


def assert_sentence(pattern: str, sentence: str) -> None:
    assert re.search(pattern, sentence), sentence
    assert "\n" not in sentence


LOSSES: dict[str, tuple[Any, str]] = {
    "a class": (nn.CrossEntropyLoss, r"CrossEntropyLoss is a class: give an instance, such as CrossEntropyLoss\(\)"),
    "a name": ("cross_entropy", "the loss is a str: give a function of"),
    "none": (None, "the loss is a NoneType: give a function of"),
    "of one argument": (lambda answer: answer.mean(), "takes 1 positional argument"),
    "a fault of its own": (lambda answer, y: answer.sum() / (len(answer[0]) // 0 + y), r"zero.*line \d+, in <lambda>"),
}


@pytest.mark.parametrize(("loss", "said"), LOSSES.values(), ids=LOSSES.keys())
def test_a_loss_that_is_none_is_refused_with_what_to_give(nowhere: Market, loss: Any, said: str) -> None:
    assert_sentence(said, refusal(nowhere, loss=loss))


DATA: dict[str, tuple[Callable[[], Any], str]] = {
    "labels from 1": (lambda: (X, Y + 1), r"row 3 of y has 4.*labels count from 0: give y - 1"),
    "labels below 0": (lambda: (X, Y - 1), "row 0 of y has -1; the model takes 0 to 3"),
    "labels as floats": (
        lambda: (X, Y.astype(np.float32)),
        r"y is float32 and has whole numbers: .*y.astype\('int64'\)",
    ),
    "labels in a column": (lambda: (X, Y[:, None]), r"y has the shape \(24, 1\): .*y\[:, 0\]"),
    "words as labels": (lambda: (X, np.array(["a", "b"])[Y % 2]), "y is of <U1: turn it into numbers first"),
    "sparse": (lambda: (TX.to_sparse(), Y), r"x is sparse: give x.to_dense\(\)"),
    "sparse by rows": (lambda: (TX.to_sparse_csr(), Y), r"x is sparse: give x.to_dense\(\)"),
    "sparse of scipy": (lambda: (sparse.csr_matrix(X), Y), r"x is sparse: give x.toarray\(\)"),
    "quantized": (
        lambda: (torch.quantize_per_tensor(TX, 0.1, 0, torch.qint8), Y),
        r"x is quantized: give x.dequantize",
    ),
    "without values": (lambda: (TX.to("meta"), Y), "x is on the meta device and has no values"),
    "nested": (lambda: (nested(), Y[:2]), "x has rows of unlike shapes: pad them"),
    "ragged lists": (lambda: ([[1.0, 2.0], [1.0]], [0, 1]), "x has rows of unlike shapes: pad them"),
    "ragged tensors": (lambda: ([torch.ones(8), torch.ones(4)], [0, 1]), "x has rows of unlike shapes: pad them"),
    "ragged targets": (lambda: (X[:2], [[0], [1, 2]]), "y has rows of unlike shapes: pad them"),
    "ragged columns": (lambda: {"x": [[1.0, 2.0], [1.0]], "y": [0, 1]}, "x has rows of unlike shapes: pad them"),
}


def nested() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([TX[0], TX[1, :4]])


@pytest.mark.parametrize(("data", "said"), DATA.values(), ids=DATA.keys())
def test_rows_that_cannot_be_sent_are_refused_with_what_to_give(
    nowhere: Market, data: Callable[[], Any], said: str
) -> None:
    assert_sentence(said, refusal(nowhere, dataset=data()))


def test_half_precision_rows_are_sent_in_float32_without_loss() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        half = TX.to(dtype)
        sent = load_rows((half, torch.tensor(Y))).arrays["x"]
        assert sent.dtype == np.float32
        assert torch.equal(torch.from_numpy(sent).to(dtype), half)
    fp8 = TX.to(torch.float8_e4m3fn)
    assert np.array_equal(load_rows((fp8, torch.tensor(Y))).arrays["x"], fp8.float().numpy())


ADAMW = torch.optim.AdamW(nn.Linear(8, 4).parameters(), lr=0.02)
FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "model as a field": ({"model": {"architecture": "mlp"}}, "model: train makes it of the module"),
    "data as a field": ({"data": {"ready": "digits"}}, "data: train makes it of the dataset"),
    "an optimizer": ({"optimizer": ADAMW}, r"optimizer: the market .* optimizers: give {'name': 'adamw', 'lr': 0.02}"),
    "an optimizer's class": (
        {"optimizer": torch.optim.AdamW},
        "optimizer: .* optimizers: give {'name': 'adamw', 'lr': 0.001}",
    ),
    "an optimizer's name": ({"optimizer": "sgd"}, "optimizer: .* optimizers: give {'name': 'sgd', 'lr': 0.001}"),
    "an optimizer that is none": ({"optimizer": 5}, "optimizer: .* optimizers: give {'name': 'adamw', 'lr': 0.001}"),
    "one that is not here": ({"optimizer": "lbfgs"}, "optimizer: there is no 'lbfgs': choose one of .*adamw"),
    "a list of holders": ({"private": ["0x"]}, r"private: give a mapping, such as {'holders': \[…\]}"),
    "a word as a fraction": ({"held_out": "a"}, "held_out: give a fraction from 0 to below 1"),
    "no such field": ({"epochs": 3}, "epochs: no such field"),
    "a word as a number": ({"rounds": "many"}, "rounds: "),
    "no format": ({"partition_format": None}, "partition_format: there is no None: choose one of jsonl, npy"),
    "an unknown format": ({"partition_format": "csv"}, "partition_format: there is no 'csv': choose one of jsonl"),
    "no amount": ({"price": "cheap"}, "price: no amount"),
}


@pytest.mark.parametrize(("fields", "said"), FIELDS.values(), ids=FIELDS.keys())
def test_a_field_of_another_kind_is_refused_with_what_to_write(
    nowhere: Market, fields: dict[str, Any], said: str
) -> None:
    assert_sentence(said, refusal(nowhere, **fields))


@pytest.mark.parametrize(
    "fields", [{}, {"step": {"microbatch": 4}}], ids=["plain", "a step that takes its rows from `rows`"]
)
def test_the_honest_twin_of_all_these_comes_as_far_as_the_service(nowhere: Market, fields: dict[str, Any]) -> None:
    with pytest.raises(ServiceUnreachable):
        nowhere.train(nn.Linear(8, 4), functional.cross_entropy, (X, Y), rounds=1, price="1000", rows=8, **fields)


def test_numbers_of_numpy_are_posted_as_numbers() -> None:
    numbers = {"rounds": np.int64(3), "price": np.int64(1000), "rows": np.int64(8), "seed": np.int64(5)}
    settings = {
        "optimizer": {"name": "adamw", "lr": np.float32(0.5)},
        "stop": [{"metric": "loss", "at": np.float64(1)}],
    }
    asked = Asked.of(numbers | settings | {"tasks_per_round": np.int32(2), "tags": ("one",)})
    ready = prepare_job(nn.Linear(8, 4), functional.cross_entropy, (X, Y), asked, lambda: LOCAL_TOKEN)
    posted = json.loads(json.dumps(ready.fields))
    assert (posted["rounds"], posted["step"]["rows"], posted["seed"], posted["tasks_per_round"]) == (3, 8, 5, 2)
    assert (posted["price"], posted["optimizer"]["lr"], posted["stop"][0]["at"]) == ("1000", 0.5, 1.0)


CALLBACKS = {"tensorboard": "TensorBoard", "wandb": "WeightsAndBiases", "mlflow": "MLflow"}


@pytest.mark.parametrize(("module", "name"), CALLBACKS.items())
def test_a_callback_without_its_package_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    for loaded in [
        one for one in sys.modules if one.split(".")[0] == module or one == f"gradmarket.callbacks.{module}"
    ]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(ImportError) as missing:
        __import__(f"gradmarket.callbacks.{module}")
    assert str(missing.value) == f"{name} needs {module}, which is not installed: pip install {module}"
    assert missing.value.__suppress_context__


def test_a_callback_that_is_a_class_is_refused(nowhere: Market) -> None:
    class Told:
        pass

    with pytest.raises(MarketError, match=r"callbacks: Told is a class: give an instance, such as Told\(\)"):
        TrainingJob(nowhere._client, "a").watch(callbacks=[Told])  # type: ignore[list-item]
