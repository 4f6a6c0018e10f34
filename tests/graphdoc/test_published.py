"""A module of one's own is published unchanged, or refused with the right form; never as something else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphdoc.document.interpret import Program, compute_gradients
from graphdoc.document.schema import parse_document
from graphdoc.errors import DocumentRefused, Refused
from graphdoc.export import check_taken, export_module
from graphdoc.figures import Published
from tests.kit.late_module import LateModule
from tests.kit.torch_tests import TRACING

model_outputs: Any = LateModule("transformers.modeling_outputs")

pytestmark = TRACING
ROWS = 8
X = np.random.default_rng(0).standard_normal((ROWS, 8)).astype(np.float32)
Y = np.arange(ROWS) % 4
IMAGES = np.random.default_rng(0).standard_normal((ROWS, 3, 8, 8)).astype(np.float32)
Loss = Callable[[Any, Tensor], Any]


def made(module: nn.Module, loss: Loss = functional.cross_entropy, x: np.ndarray = X, y: np.ndarray = Y) -> Published:
    return export_module(module, loss, {"x": x, "y": y})


def by_document(answer: Published, x: np.ndarray = X, y: np.ndarray = Y) -> dict[str, Tensor]:
    """Gradients as a worker computes them: from the bytes that travel."""
    program = Program(parse_document(answer.document))
    state = {name: torch.tensor(np.ascontiguousarray(array)) for name, array in answer.parameters.items()}
    leaves = {entry.name: state[entry.name].requires_grad_() for entry in program.document.trainable}
    results = program.run(state | leaves, {"x": torch.tensor(x), "y": torch.tensor(y)}, bytes(32))
    return dict(zip(leaves, compute_gradients(results.loss, list(leaves.values())), strict=True))


def alone(
    module: nn.Module, loss: Loss = functional.cross_entropy, x: np.ndarray = X, y: np.ndarray = Y
) -> dict[str, Tensor]:
    parameters = dict(module.named_parameters())
    found = torch.autograd.grad(loss(module(torch.tensor(x)), torch.tensor(y)), list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return set(ours) == set(theirs) and all(
        np.array_equal(ours[name].contiguous().numpy().view(np.int32), theirs[name].contiguous().numpy().view(np.int32))
        for name in ours
    )


def with_hook(after: bool) -> nn.Module:
    module = nn.Linear(8, 4)
    if after:
        module.weight.register_post_accumulate_grad_hook(print)
    else:
        module.weight.register_hook(lambda gradient: gradient * 2)
    return module


@pytest.mark.parametrize("after", [False, True])
def test_a_hook_on_a_parameter_is_refused_and_not_lost_in_the_copy(after: bool) -> None:
    with pytest.raises(DocumentRefused, match="weight has a hook on its gradient"):
        made(with_hook(after))


class Shifted(nn.Module):
    """A loss with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(4))

    def forward(self, answer: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(answer + self.shift, target)


class Running(nn.Module):
    """A loss that remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, answer: Tensor, target: Tensor) -> Tensor:
        self.get_buffer("mean").mul_(0.9).add_(answer.detach().mean(0))
        return functional.cross_entropy(answer - self.get_buffer("mean"), target)


def penalised(module: nn.Module) -> Loss:
    return lambda answer, y: functional.cross_entropy(answer, y) + sum(p.square().sum() for p in module.parameters())


LINEAR = nn.Linear(8, 4)
LOSSES: dict[str, tuple[Loss, str]] = {
    "a parameter of its own": (Shifted(), "trainable tensor of shape .4. that is not a parameter of the module"),
    "a penalty on the original": (penalised(LINEAR), "make it a parameter of the module"),
    "a buffer that changes": (Running(), "no buffer of the module"),
    "a sum": (nn.CrossEntropyLoss(reduction="sum"), "take reduction='mean'"),
    "a sum over a constant": (lambda a, y: functional.cross_entropy(a, y, reduction="sum") / 64, "their mean"),
}


@pytest.mark.parametrize(("loss", "reason"), LOSSES.values(), ids=LOSSES.keys())
def test_a_loss_that_would_be_another_is_refused(loss: Loss, reason: str) -> None:
    with pytest.raises(DocumentRefused, match=reason):
        made(LINEAR, loss)


def contrast(answer: Tensor, _: Tensor) -> Tensor:
    """Each row against all others: it grows with the logarithm of the rows."""
    return functional.cross_entropy(answer @ answer.t(), torch.arange(answer.shape[0]))


class Answering(nn.Module):
    """A module that returns a function of its answer."""

    def __init__(self, shape: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.shape = nn.Linear(8, 4), shape

    def forward(self, x: Tensor) -> Any:
        return self.shape(self.linear(x))


SUMS: dict[str, tuple[Callable[[Tensor], Any], Loss]] = {
    "of rows' numbers": (lambda h: {"rows": h.square().mean(1), "by": h}, lambda answer, _: answer["rows"].sum()),
    "taken in the module": (lambda h: h.square().sum(), lambda answer, _: answer),
    "with one taken in it": (lambda h: (h, h.square().sum()), lambda answer, _: answer[0].sum() + answer[1]),
    "of what has two states": (lambda h: (h, h.mean(0)[:2]), lambda answer, _: answer[0].square().sum()),
}


@pytest.mark.parametrize(("told", "loss"), SUMS.values(), ids=SUMS.keys())
def test_a_sum_is_found_wherever_it_is_taken(told: Callable[[Tensor], Any], loss: Loss) -> None:
    with pytest.raises(DocumentRefused, match="the loss is a sum over the rows"):
        made(Answering(told), loss)


def test_a_mean_is_known_from_the_answers_to_two_rows() -> None:
    rows: list[int] = []

    def record_rows(answer: Tensor) -> Tensor:
        rows.extend([answer.shape[0]] * (type(answer.shape[0]) is int))
        return answer

    made(Answering(record_rows))
    assert sorted(set(rows)) == [2, 3], "four rows, twice the two, are not computed"


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(weight=torch.ones(4)), contrast], ids=["weights", "contrast"])
def test_a_loss_that_is_no_sum_is_taken(loss: Loss) -> None:
    assert same(by_document(made(LINEAR, loss)), alone(LINEAR, loss))


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.Flatten(), nn.Linear(128, 4))


def test_parameters_in_channels_last_have_the_modules_own_bits() -> None:
    module = convolution().to(memory_format=torch.channels_last)
    assert same(by_document(made(module, x=IMAGES), IMAGES), alone(module, x=IMAGES))


class Product(nn.Module):
    def __init__(self, first: Tensor, second: Tensor) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(first), nn.Parameter(second)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.first @ self.second.t()


def test_parameters_in_another_order_in_memory_have_the_modules_own_bits() -> None:
    module = Product(torch.randn(8, 8).t(), torch.randn(4, 8))
    assert not module.first.is_contiguous()
    assert same(by_document(made(module)), alone(module))


def shared(whole: Tensor, part: Callable[[Tensor], Tensor]) -> nn.Module:
    return Product(whole, part(whole))


def watched() -> nn.Module:
    module = nn.Linear(8, 4)
    module.register_buffer("part", module.weight.data[:2])
    return module


OVERLAPS: dict[str, Callable[[], nn.Module]] = {
    "a part of another": lambda: shared(torch.randn(8, 8), lambda whole: whole[:4]),
    "all of another": lambda: shared(torch.randn(8, 8), lambda whole: whole),
    "itself": lambda: Product(torch.randn(8, 1).expand(8, 8), torch.randn(4, 8)),
    "a buffer": watched,
}


@pytest.mark.parametrize("build", OVERLAPS.values(), ids=OVERLAPS.keys())
def test_parameters_that_share_memory_are_refused(build: Callable[[], nn.Module]) -> None:
    with pytest.raises(DocumentRefused, match="shares memory with"):
        made(build())


def test_parameters_beside_each_other_in_one_memory_are_taken() -> None:
    whole = torch.randn(96)
    module = Product(whole[:64].view(8, 8), whole[64:].view(4, 8))
    assert same(by_document(made(module)), alone(module))


def test_a_parameter_with_gaps_in_memory_has_its_own_bits_or_is_refused_by_name() -> None:
    """Whether kernels compute otherwise over gaps is the machine's."""
    whole = torch.randn(8, 12)
    module = Product(whole[:, :8], whole[:, 8:].t())
    said = ""
    try:
        answer = made(module)
    except DocumentRefused as refused:
        said = refused.detail
    named = "first does not lie in memory as it will" in said and "parameter.data.contiguous()" in said
    assert named or same(by_document(answer), alone(module))


ANSWERS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor], str]] = {
    "a tuple": (lambda h: (h, None, [h]), lambda a: a[0], r"answer\[0\]"),
    "a mapping": (lambda h: {"logits": h, "rest": None}, lambda a: a["logits"], r"answer\['logits'\]"),
    "a model output": (
        lambda h: model_outputs.SequenceClassifierOutput(logits=h),
        lambda a: a.logits,
        r"answer\.logits",
    ),
}


@pytest.mark.parametrize(("shape", "part", "said"), ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_may_have_parts(shape: Callable[[Tensor], Any], part: Callable[[Any], Tensor], said: str) -> None:
    module = Answering(shape)

    def loss(answer: Any, y: Tensor) -> Tensor:
        return functional.cross_entropy(part(answer), y)

    answer = made(module, loss)
    assert set(parse_document(answer.document).metrics) == {"accuracy"}
    assert same(by_document(answer), alone(module, loss))
    with pytest.raises(DocumentRefused, match=f"which the loss does not take.*{said}"):
        made(module)


def test_publishing_leaves_the_module_unchanged() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4)).eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    made(module)
    assert not module.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_a_label_that_the_module_does_not_take_is_refused_by_its_row_wherever_it_is() -> None:
    arrays = {"x": np.tile(X, (3, 1)), "y": np.tile(Y, 3)}
    arrays["y"][20] = 7
    answer = export_module(nn.Linear(8, 4), functional.cross_entropy, arrays)
    with pytest.raises(Refused, match="row 20 of y has 7; the model takes 0 to 3, and -100 for none"):
        check_taken(answer, arrays, ROWS)
    arrays["y"][2] = 7
    with pytest.raises(Refused, match="row 2 of y has 7"):
        check_taken(export_module(nn.Linear(8, 4), functional.cross_entropy, arrays), arrays, ROWS)
    arrays["y"][[2, 20]] = -100, 0
    check_taken(answer, arrays, ROWS)


@pytest.mark.parametrize(
    ("y", "hint"),
    [
        (Y.astype(np.float64), "has whole numbers: if those are labels, give y.astype('int64')"),
        (Y[:, None], "has the shape (8, 1): if those are labels, or the answer has no such dimension, give y[:, 0]"),
        (Y + 0.5, ""),
    ],
)
def test_a_target_that_the_loss_does_not_take_is_hinted_at(y: np.ndarray, hint: str) -> None:
    with pytest.raises(DocumentRefused) as refused:
        made(nn.Linear(8, 4), functional.nll_loss, y=y)
    assert hint in refused.value.detail
    assert ("give y" in refused.value.detail) == bool(hint)
