"""One contract over every ready architecture: it builds, publishes, and names the argument that it refuses."""

from typing import Any

import pytest
import torch

from gradmarket.market.errors import JobRefused
from gradmarket.runner import architectures
from gradmarket.runner.architectures import cnn, gpt, mlp
from graphdoc import plugins
from graphdoc.document.graph import Precision
from graphdoc.document.publish import compute_classification_loss, publish_module
from graphdoc.document.schema import parse_document
from tests.lanes import FULL, leave_to_full

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
NAMES = plugins.list_plugin_names(architectures.__name__)
PRECISIONS: tuple[Precision, Precision] = ("bf16", "fp32")
CLASSIFIERS = [name for name in NAMES if name != "gpt"]


def test_the_files_are_the_architectures() -> None:
    assert NAMES == ("cnn", "gpt", "mlp")


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_an_architecture_classifies_images(name: str) -> None:
    torch.manual_seed(0)
    module = plugins.load_plugin(architectures.__name__, name).build({}, (1, 8, 8), 10)
    published = publish_module(module, compute_classification_loss, (torch.randn(4, 1, 8, 8), torch.arange(4)))
    assert module(torch.randn(3, 1, 8, 8)).shape == (3, 10)
    assert parse_document(published.document).batch(5) == {"x": ((5, 1, 8, 8), "float32"), "y": ((5,), "int64")}
    assert set(published.parameters) == set(module.state_dict())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *((name, refused) for name in NAMES for refused in ({"unknown": 1}, {"dropout": 1.0}, {"dropout": "0"})),
        *((name, {"activation": "exp"}) for name in CLASSIFIERS),
    ],
)
def test_an_argument_is_refused_by_name(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(JobRefused) as refused:
        plugins.load_plugin(architectures.__name__, name).build(arguments, (8,) if name == "gpt" else (1, 8, 8), 10)
    assert refused.value.field == f"model.arguments.{next(iter(arguments))}"


@pytest.mark.parametrize("hidden", [[0], [-1], [1.5], ["8"], [True], 8, [10**9], [8] * 65])
def test_widths_of_layers(hidden: Any) -> None:
    with pytest.raises(JobRefused, match=r"model\.arguments\.hidden"):
        mlp.build({"hidden": hidden}, (8, 8), 10)


def test_a_flat_image_has_one_channel_and_a_vector_is_no_image() -> None:
    assert cnn.build({"channels": [4, 4, 4, 4, 4]}, (8, 8), 3)(torch.randn(2, 8, 8)).shape == (2, 3)
    with pytest.raises(JobRefused, match="images"):
        cnn.build({}, (64,), 10)


def test_arguments_take_effect() -> None:
    module = cnn.build({"channels": [4], "batch_norm": False, "dropout": 0.5, "activation": "gelu"}, (1, 8, 8), 10)
    kinds = [type(layer).__name__ for layer in module]
    assert kinds == ["Conv2d", "GELU", "MaxPool2d", "Flatten", "Dropout", "Linear"]
    deep = mlp.build({"hidden": [5, 6, 7], "activation": "tanh"}, (64,), 10)
    assert [layer.out_features for layer in deep if isinstance(layer, torch.nn.Linear)] == [5, 6, 7, 10]


def test_gpt_predicts_each_place_from_those_before_it() -> None:
    torch.manual_seed(0)
    module = gpt.build({"depth": 1, "width": 8, "heads": 2}, (6,), 5).eval()
    x = torch.randint(5, (2, 6))
    other = x.clone()
    other[:, 4] = (other[:, 4] + 1) % 5
    before, after = module(x), module(other)
    assert before.shape == (2, 6, 5)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])
    published = publish_module(module, gpt.OBJECTIVE, (x, x))
    assert parse_document(published.document).batch(3) == {"x": ((3, 6), "int64"), "y": ((3, 6), "int64")}


def test_gpt_takes_rows_of_tokens_and_heads_that_divide_its_width() -> None:
    with pytest.raises(JobRefused, match="rows of tokens"):
        gpt.build({}, (8, 8), 10)
    with pytest.raises(JobRefused, match=r"heads: a width of 64 is no multiple of 5"):
        gpt.build({"heads": 5}, (8,), 10)


@FULL
@pytest.mark.parametrize("name", leave_to_full(sorted(NAMES, key="gpt".__eq__), 2))
def test_in_bf16_matrix_products_are_and_what_goes_in_and_out_is_not(name: str) -> None:
    torch.manual_seed(0)
    tokens = name == "gpt"
    architecture = plugins.load_plugin(architectures.__name__, name)
    module = architecture.build({}, (8,) if tokens else (1, 8, 8), 10)
    labels = torch.arange(32).reshape(4, 8) % 10
    example = (labels, labels) if tokens else (torch.randn(4, 1, 8, 8), torch.arange(4))
    half, full = (
        parse_document(publish_module(module, architecture.OBJECTIVE, example, precision=one).document)
        for one in PRECISIONS
    )
    assert (half.precision, full.precision) == PRECISIONS
    assert half.state == full.state
    assert half.digest != full.digest
