"""Models as people write them: published with the module's own bits, or refused with the right form."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, rnn

from graphdoc.document.schema import parse_document
from graphdoc.errors import DocumentRefused
from graphdoc.export import export_module
from tests.kit.torch_tests import TRACING
from tests.lanes import FULL, leave_to_full
from tests.models import hub

pytestmark = TRACING
X = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
Y = np.arange(8) % 4
WORDS = np.arange(8 * 66).reshape(8, 66) % 13


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(8, 8), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x))


class Recurrent(nn.Module):
    """Two layers with dropout between them."""

    def __init__(self, kind: Callable[..., nn.Module], **settings: Any) -> None:
        super().__init__()
        self.inner = kind(1, 4, num_layers=2, dropout=0.3, **settings)
        self.batch_first = bool(settings.get("batch_first"))
        self.outer = nn.Linear(8 if settings.get("bidirectional") else 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        sequence = x.unsqueeze(-1) if self.batch_first else x.t().unsqueeze(-1)
        answer, state = self.inner(sequence)
        ended = state[0] if isinstance(state, tuple) else state
        return self.outer(answer.mean(1 if self.batch_first else 0)) + ended.sum()


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.full((x.shape[0],), 5)
        packed = rnn.pack_padded_sequence(x.unsqueeze(-1), lengths, batch_first=True, enforce_sorted=False)
        return self.outer(self.inner(packed)[1][0])


def without(h: Tensor) -> Tensor:
    h = h.clone()
    h[h > 0] = 0.0
    return h


class Pairs(nn.Module):
    """Products of pairs of features, whose places are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(36, 4)
        self.register_buffer("pairs", torch.tril_indices(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.pairs
        return self.linear(x[:, first] * x[:, second])


class Rotary(nn.Module):
    """Places turned by angles, with real and imaginary parts in two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        angles = torch.outer(torch.arange(2.0), torch.arange(1.0, 3.0))
        self.register_buffer("turned", torch.stack([angles.cos(), angles.sin()]))

    def forward(self, x: Tensor) -> Tensor:
        real, imaginary = self.linear(x).view(-1, 2, 2, 2).unbind(-1)
        cosine, sine = self.turned
        return torch.stack([real * cosine - imaginary * sine, real * sine + imaginary * cosine], -1).flatten(1)


class Padded(nn.Module):
    """Places beyond a row's length are masked, and do not count in the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        counts = (x > -0.5).unsqueeze(-1)
        answer = torch.where(counts, self.inner(x.unsqueeze(-1))[0], 0.0)
        return self.outer(answer.sum(1) / counts.sum(1).clamp(min=1))


EXPRESSED: dict[str, Callable[[], nn.Module]] = {
    "the smaller of two": lambda: Function(lambda h: torch.min(h, h * 2) + torch.max(h, -h)),
    "chance in a shape": lambda: Function(lambda h: h * torch.rand(8) + torch.randn(h.shape[0], 8)),
    "a write by a mask": lambda: Function(without),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(8, 8)),
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(8, 8)),
    "weight norm of a convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 4)), parametrizations.weight_norm(nn.Conv1d(2, 3, 3)), nn.Flatten()
    ),
    "lstm": lambda: Recurrent(nn.LSTM, batch_first=True),
    "lstm both ways": lambda: Recurrent(nn.LSTM, bidirectional=True),
    "gru": lambda: Recurrent(nn.GRU, bidirectional=True, batch_first=True),
    "rnn": lambda: Recurrent(nn.RNN),
    "weight norm by the last dimension": lambda: parametrizations.weight_norm(nn.Linear(8, 8), dim=1),
    "pairs of a buffer": Pairs,
    "rotary in two tensors": Rotary,
    "padded and masked": Padded,
}


@pytest.mark.parametrize("build", leave_to_full(EXPRESSED.values(), 3), ids=EXPRESSED.keys())
def test_a_module_is_published_with_its_own_bits(build: Callable[[], nn.Module]) -> None:
    """Publishing compares loss, gradients and buffers of both documents with the module's, bit by bit."""
    answer = export_module(build(), functional.cross_entropy, {"x": X, "y": Y})
    assert parse_document(answer.document).trainable
    assert parse_document(answer.evaluation).trainable


class Attending(nn.Module):
    """Attention whose heads are joined as torch's fused kernel lays them out, so that the trace has no copy."""

    def __init__(self, copies: bool) -> None:
        super().__init__()
        self.inner, self.outer, self.copies = nn.Linear(4, 12), nn.Linear(8, 4), copies

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.inner(x.view(-1, 2, 4)).view(-1, 2, 3, 2, 2).permute(2, 0, 3, 1, 4).unbind()
        heads = functional.scaled_dot_product_attention(query, key, value)
        joined = heads.transpose(1, 2)
        return self.outer((joined.contiguous() if self.copies else joined).view(-1, 8))


@pytest.mark.parametrize("copies", [True, False])
def test_heads_are_joined_on_every_device(copies: bool) -> None:
    """On meta tensors and where attention is not fused, its result lies in another order, which a view cannot join."""
    answer = export_module(Attending(copies), functional.cross_entropy, {"x": X, "y": Y})
    assert "reshape.default" in {node.op for node in parse_document(answer.document).nodes}


class Backpropagating(nn.Linear):
    """Asks for the gradient of its data, as wav2vec2 does for its first convolution."""

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, None]
        if self.training:
            x.requires_grad = True
        return super().forward(x).flatten(1)


def test_a_gradient_of_the_data_is_no_parameter() -> None:
    answer = export_module(Backpropagating(8, 4), functional.cross_entropy, {"x": X, "y": Y})
    assert [entry.name for entry in parse_document(answer.document).trainable] == ["weight", "bias"]


class Clipped(nn.Linear):
    """Cuts its answers, but only where it is evaluated."""

    def forward(self, x: Tensor) -> Tensor:
        answer = super().forward(x)
        return answer if self.training else answer.clamp(-9.0, 9.0)


class Switched(nn.Linear):
    """Takes another path when its mode is set, and asks for none."""

    def train(self, mode: bool = True) -> nn.Module:
        self.path = torch.relu if mode else torch.tanh
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        return self.path(super().forward(x))


@pytest.mark.parametrize(("kind", "evaluates"), [(Clipped, "clamp.default"), (Switched, "tanh.default")])
def test_training_and_evaluation_are_two_documents_where_the_module_differs(kind: Any, evaluates: str) -> None:
    """Also where no answer shows it: of the clipped one none is as large."""
    answer = export_module(kind(8, 4), functional.cross_entropy, {"x": X, "y": Y})
    assert evaluates in {node.op for node in parse_document(answer.evaluation).nodes}
    assert evaluates not in {node.op for node in parse_document(answer.document).nodes}


def test_training_and_evaluation_are_one_document_where_no_module_reads_the_mode() -> None:
    answer = export_module(nn.Linear(8, 4), functional.cross_entropy, {"x": X, "y": Y})
    assert answer.document == answer.evaluation


@FULL
def test_a_long_sequence_is_one_node() -> None:
    """Traced as one call too: by places, a thousand of them took minutes."""
    x = np.zeros((8, 1024, 1), np.float32)

    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.outer(self.inner(x)[0].mean(1))

    answer = export_module(Long(), functional.cross_entropy, {"x": x, "y": Y})
    assert [node.op for node in parse_document(answer.document).nodes].count("gru.input") == 1
    assert len(parse_document(answer.document).nodes) < 20


def transformer(kind: Any, config: Any, **settings: Any) -> nn.Module:
    sizes = {**hub.SMALL, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32}
    return kind(config(**sizes, **hub.WORDS, max_position_embeddings=128, **settings))


def mixtral() -> nn.Module:
    model = transformer(hub.transformers.MixtralForCausalLM, hub.transformers.MixtralConfig, num_local_experts=4)
    model.config._experts_implementation = "batched_mm"
    return model


def t5() -> nn.Module:
    sizes = {"vocab_size": 17, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}

    class Same(nn.Module):
        """Returns its input."""

        def __init__(self) -> None:
            super().__init__()
            config = hub.transformers.T5Config(**sizes, decoder_start_token_id=0)
            self.inner = hub.transformers.T5ForConditionalGeneration(config)

        def forward(self, input_ids: Tensor) -> Any:
            return self.inner(input_ids=input_ids, decoder_input_ids=input_ids)

    return Same()


LANGUAGE: dict[str, Callable[[], nn.Module]] = {
    "llama": lambda: transformer(hub.transformers.LlamaForCausalLM, hub.transformers.LlamaConfig),
    "qwen2": lambda: transformer(hub.transformers.Qwen2ForCausalLM, hub.transformers.Qwen2Config),
    "mixtral": mixtral,
    "t5": t5,
}


@FULL
@pytest.mark.parametrize("build", LANGUAGE.values(), ids=LANGUAGE.keys())
def test_the_librarys_models_are_published_as_they_come(build: Callable[[], nn.Module]) -> None:
    """With grouped queries, the default attention, 66 words, and the cache that is on by default."""

    def loss(answer: Any, y: Tensor) -> Tensor:
        return functional.cross_entropy(answer.logits.flatten(0, 1), y.flatten())

    answer = export_module(build(), loss, {"input_ids": WORDS, "y": WORDS})
    assert parse_document(answer.document).trainable


class Between(nn.Module):
    """Its norms are by neither the first dimension nor the last."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = parametrizations.weight_norm(nn.Conv1d(2, 2, 3), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.view(-1, 2, 4)).flatten(1)


class Dropped(nn.Linear):
    """Leaves itself out by chance."""

    def forward(self, x: Tensor) -> Tensor:
        return x if torch.rand([]) < 0.1 else super().forward(x)


class Labelled(nn.Linear):
    """Its loss is that of labels without places."""

    def __init__(self) -> None:
        super().__init__(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        scores = super().forward(x).view(-1, 4, 2).transpose(0, 1).log_softmax(-1)
        ones = torch.ones(x.shape[0], 1, dtype=torch.int64)
        lengths = torch.full((x.shape[0],), 4), torch.full((x.shape[0],), 1)
        return super().forward(x) + functional.ctc_loss(scores, ones, *lengths)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a mask as an index": (
        lambda: Function(lambda h: h + h[h > 0].sum()),
        r"index\.Tensor takes a mask as an index.*torch\.where\(mask, x, 0\)",
    ),
    "where something holds": (
        lambda: Function(lambda h: h + h.flatten()[torch.where(h.flatten() > 0)].sum()),
        r"torch\.where\(mask, x, 0\)",
    ),
    "bags": (lambda: nn.Sequential(nn.EmbeddingBag(13, 8), nn.Linear(8, 4)), r"nn\.Embedding and \.mean\(1\)"),
    "weight norm between": (Between, "use dim=0"),
    "layers that are left out": (lambda: Dropped(8, 8), r"layerdrop=0\.0"),
    "connectionist labels": (Labelled, r"logaddexp"),
    "the real part of a transform": (
        lambda: Function(lambda h: torch.fft.fftn(h.to(torch.complex64)).real),
        "its matrix",
    ),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(8, 8)), "in products of matrices"),
    "fourier": (lambda: Function(lambda h: torch.fft.rfft(h).abs()), "the transform's matrix"),
    "complex": (lambda: Function(lambda h: torch.view_as_complex(h.view(-1, 4, 2)).abs()), "real and imaginary parts"),
    "pairs made anew": (
        lambda: Function(lambda h: h * h[:, torch.tril_indices(8, 8)[0]].sum()),
        r"self\.register_buffer\('pairs', torch\.tril_indices",
    ),
    "back from fourier": (lambda: Function(lambda h: torch.fft.irfft(torch.fft.rfft(h))), "the transform's matrix"),
    "complex rotary": (
        lambda: Function(lambda h: torch.view_as_real(torch.view_as_complex(h.view(-1, 4, 2)) * 1j).flatten(1)),
        "real and imaginary parts",
    ),
    "a histogram": (lambda: Function(lambda h: h * torch.histc(h, 8)), r"one_hot\(x, bins\)\.sum\(0\)"),
    "padded sequences": (Packed, "keep the padding and mask what is beyond"),
    "a computed tensor": (lambda: nn.utils.weight_norm(nn.Linear(8, 8)), "torch.nn.utils.parametrizations"),
}


@pytest.mark.parametrize(("build", "instead"), leave_to_full(REFUSED.values(), 2), ids=REFUSED.keys())
def test_a_refusal_names_the_module_to_write_instead(build: Callable[[], nn.Module], instead: str) -> None:
    module = build()
    words = isinstance(module, nn.Sequential)
    with pytest.raises(DocumentRefused, match=instead):
        export_module(module, functional.cross_entropy, {"x": WORDS[:, :8] if words else X, "y": Y})
