"""One contract over every ready architecture: it builds, publishes, and names the argument that it refuses."""

from typing import Any

import pytest
import torch

from gradmarket.market import plugins
from gradmarket.market.errors import JobRefused
from gradmarket.market.model import architectures
from gradmarket.market.model.architectures import cnn, mlp
from gradmarket.market.model.document.publish import classification, publish
from gradmarket.market.model.document.schema import load

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
NAMES = plugins.names(architectures.__name__)


def test_the_files_are_the_architectures() -> None:
    assert NAMES == ("cnn", "mlp")


@pytest.mark.parametrize("name", NAMES)
def test_an_architecture_classifies_images(name: str) -> None:
    torch.manual_seed(0)
    module = plugins.load(architectures.__name__, name).build({}, (1, 8, 8), 10)
    published = publish(module, classification, (torch.randn(4, 1, 8, 8), torch.arange(4)))
    assert module(torch.randn(3, 1, 8, 8)).shape == (3, 10)
    assert load(published.document).batch(5) == {"x": ((5, 1, 8, 8), "float32"), "y": ((5,), "int64")}
    assert set(published.parameters) == set(module.state_dict())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arguments", [{"unknown": 1}, {"activation": "exp"}, {"dropout": 1.0}, {"dropout": "0"}])
def test_an_argument_is_refused_by_name(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(JobRefused) as refused:
        plugins.load(architectures.__name__, name).build(arguments, (1, 8, 8), 10)
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
