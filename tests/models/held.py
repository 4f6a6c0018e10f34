"""Sixty models of the families that people bring, small, each with its loss and rows: none is in the zoo."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

Loss = Callable[[Any, Tensor], Tensor]
Case = tuple[Callable[[], nn.Module], Loss, Callable[[], dict[str, Tensor]]]
ROWS, WIDTH, WORDS = 6, 16, 32


class Function(nn.Module):
    """Layers, and the function between them."""

    def __init__(self, between: Callable[[Tensor], Tensor], width: int = WIDTH) -> None:
        super().__init__()
        self.first, self.between, self.last = nn.Linear(WIDTH, WIDTH), between, nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x)))


class Sequence(nn.Module):
    """Words, a function of their vectors, and a word for every place."""

    def __init__(self, inner: nn.Module, width: int = WIDTH) -> None:
        super().__init__()
        self.embedding, self.inner, self.head = nn.Embedding(WORDS, WIDTH), inner, nn.Linear(width, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        answer = self.inner(self.embedding(x))
        return self.head(answer[0] if isinstance(answer, tuple) else answer)


class Causal(nn.Module):
    def __init__(self, mask: Callable[[int], Tensor], dropout: float = 0.0, first: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout, batch_first=True, norm_first=first)
        self.inner, self.mask = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), mask

    def forward(self, h: Tensor) -> Tensor:
        return self.inner(h, mask=self.mask(h.shape[1]))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Transformer(WIDTH, 2, 1, 1, 32, 0.0, batch_first=True)

    def forward(self, h: Tensor) -> Tensor:
        return self.inner(h, h, tgt_mask=nn.Transformer.generate_square_subsequent_mask(h.shape[1]))


class Residual(nn.Module):
    """A block that is left out by chance, a row at a time (Huang et al. 2016), as `kind` writes it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner, self.out, self.kind = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4), kind

    def forward(self, x: Tensor) -> Tensor:
        shape = (x.shape[0], 1)
        if not self.training:
            return self.out(x + self.inner(x).relu())
        if self.kind == "torchvision":
            kept = torch.empty(shape, dtype=x.dtype, device=x.device).bernoulli_(0.8).div_(0.8)
        elif self.kind == "timm":
            kept = x.new_empty(shape).bernoulli_(0.8) / 0.8
        else:
            kept = (0.8 + torch.rand(shape, dtype=x.dtype, device=x.device)).floor_() / 0.8
        return self.out(x + kept * self.inner(x).relu())


class Views(nn.Module):
    """One encoder with a batch norm on two views (SimCLR, BYOL, a siamese pair)."""

    def __init__(self, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WIDTH, 8), norm(), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(x), self.encoder(x.flip(1))


class Frozen(nn.Module):
    def __init__(self, *kinds: type[nn.Module]) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, 4))
        for part in self.inner:
            if isinstance(part, kinds):
                part.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Autoencoder(nn.Module):
    def __init__(self, variational: bool) -> None:
        super().__init__()
        self.inner, self.outer, self.variational = nn.Linear(WIDTH, 8), nn.Linear(4, WIDTH), variational

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.inner(x).chunk(2, 1)
        drawn = mean + torch.randn_like(mean) * spread.exp() if self.variational and self.training else mean
        return torch.sigmoid(self.outer(drawn)), mean


class Tables(nn.Module):
    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, 4) for size in sizes)
        self.out = nn.Linear(4 * len(sizes), 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([table(x[:, place]) for place, table in enumerate(self.tables)], 1))


def labels() -> Tensor:
    return torch.arange(ROWS) % 4


def numbers() -> dict[str, Tensor]:
    return {"x": torch.randn(ROWS, WIDTH), "y": labels()}


def unit() -> dict[str, Tensor]:
    return {"x": torch.rand(ROWS, WIDTH) * 0.9 + 0.05, "y": labels()}


def counts() -> dict[str, Tensor]:
    return {"x": torch.poisson(torch.full((ROWS, WIDTH), 3.0)), "y": labels()}


def words() -> dict[str, Tensor]:
    return {"x": torch.randint(0, WORDS, (ROWS, 8)), "y": torch.randint(0, WORDS, (ROWS, 8))}


def padded() -> dict[str, Tensor]:
    data = words()
    for row in range(ROWS):
        data["y"][row, row + 1 :] = -100
    return data


def named() -> dict[str, Tensor]:
    data = words()
    return {"input_ids": data["x"], "y": data["y"]}


def images() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(ROWS, 3, 16, 16), "y": labels()}


def pictures() -> dict[str, Tensor]:
    return {"x": torch.randn(ROWS, 3, 16, 16), "y": labels()}


def places(answer: Any, y: Tensor) -> Tensor:
    scores = answer if isinstance(answer, Tensor) else answer.logits
    return F.cross_entropy(scores.flatten(0, 1), y.flatten())


def classes(answer: Any, y: Tensor) -> Tensor:
    return F.cross_entropy(answer.logits, y)


def both(answer: Any, y: Tensor) -> Tensor:
    return F.cross_entropy(answer[0], y) + F.cross_entropy(answer[1], y % 2)


def table(*sizes: int) -> Callable[[], dict[str, Tensor]]:
    return lambda: {"x": torch.stack([torch.randint(0, size, (ROWS,)) for size in sizes], 1), "y": labels()}


def between(function: Callable[[Tensor], Tensor], rows: Callable[[], dict[str, Tensor]] = numbers) -> Case:
    return lambda: Function(function), F.cross_entropy, rows


def before(function: Callable[[Tensor], Tensor], rows: Callable[[], dict[str, Tensor]]) -> Case:
    """A function of the data itself, whose domain noise would leave."""

    class Behind(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 4))

        def forward(self, x: Tensor) -> Tensor:
            return self.out(function(x))

    return Behind, F.cross_entropy, rows


def reads(build: Callable[[], nn.Module]) -> Case:
    return lambda: Sequence(build()), places, words


SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 16}
WORDED = {**SMALL, "vocab_size": WORDS, "max_position_embeddings": 16}
ENDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
VISION = {**SMALL, "image_size": 16, "patch_size": 8, "num_labels": 4}


def language(kind: Any, config: Any, **settings: Any) -> Case:
    return lambda: kind(config(**{**WORDED, **settings}, **ENDS)), places, named


def looks(kind: Any, config: Any, **settings: Any) -> Case:
    return lambda: kind(config(**{**VISION, **settings})), classes, images


def convolutions(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def reconstruction(answer: Any, y: Tensor) -> Tensor:
    return F.binary_cross_entropy(answer[0], y) + 0.1 * answer[1].square().mean()


def pixels() -> dict[str, Tensor]:
    x = torch.rand(ROWS, WIDTH)
    return {"x": x, "y": x.clone()}


SIZES: dict[str, int] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SOUND: dict[str, Any] = {
    "conv_dim": (8, 8),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 8,
    "layerdrop": 0.0,
    "apply_spec_augment": False,
    "num_labels": 4,
}


def sounds() -> dict[str, Tensor]:
    return {"input_values": torch.randn(8, 400), "y": torch.arange(8) % 4}


HELD: dict[str, Case] = {
    "depth as torchvision": (lambda: Residual("torchvision"), F.cross_entropy, numbers),
    "depth as timm": (lambda: Residual("timm"), F.cross_entropy, numbers),
    "depth as transformers": (lambda: Residual("transformers"), F.cross_entropy, numbers),
    "two views": (lambda: Views(lambda: nn.BatchNorm1d(8)), both, numbers),
    "two views, no statistics": (lambda: Views(lambda: nn.BatchNorm1d(8, track_running_stats=False)), both, numbers),
    "two views by layer": (lambda: Views(lambda: nn.LayerNorm(8)), both, numbers),
    "a frozen norm": (lambda: Frozen(nn.BatchNorm1d), F.cross_entropy, numbers),
    "a frozen dropout": (lambda: Frozen(nn.Dropout), F.cross_entropy, numbers),
    "both frozen": (lambda: Frozen(nn.Dropout, nn.BatchNorm1d), F.cross_entropy, numbers),
    "all in evaluation": (lambda: Frozen().eval(), F.cross_entropy, numbers),
    "pixels": (lambda: Autoencoder(False), reconstruction, pixels),
    "pixels, variational": (lambda: Autoencoder(True), reconstruction, pixels),
    "two tables": (lambda: Tables(20, 3), F.cross_entropy, table(20, 3)),
    "five tables": (lambda: Tables(2, 50, 7, 3, 11), F.cross_entropy, table(2, 50, 7, 3, 11)),
    "logarithm of counts": before(lambda x: torch.log1p(x), counts),
    "root of counts": before(lambda x: torch.sqrt(x + 0.375), counts),
    "log odds": before(lambda x: torch.log(x / (1 - x)), unit),
    "powers": before(lambda x: x**0.3, unit),
    "arcs": before(torch.acos, unit),
    "entropies": before(lambda x: -x * x.log(), unit),
    "prod": between(lambda h: h * h.prod(1, keepdim=True)),
    "fill": between(lambda h: h.masked_fill(h > 0, h.mean())),
    "distances": between(lambda h: h * torch.cdist(h, h.detach() + 1).mean(1, keepdim=True)),
    "count of rows": between(lambda h: h * h.sum() / len(h)),
    "gumbel": between(F.gumbel_softmax),
    "noise in place": between(lambda h: h + torch.empty_like(h).normal_(0, 0.1)),
    "clip and multiply": between(lambda h: torch.multiply(torch.clip(h, -1, 1), h)),
    "norms": between(lambda h: h / torch.linalg.norm(h, dim=1, keepdim=True)),
    "tensordot": between(lambda h: torch.tensordot(h, torch.ones(WIDTH, WIDTH), 1)),
    "moved axes": between(lambda h: torch.moveaxis(h.view(-1, 4, 4), 1, 2).flatten(1)),
    "quantile": between(lambda h: h - torch.quantile(h, 0.5, 1, keepdim=True)),
    "concatenate": between(lambda h: torch.concatenate([h[:, 8:], h[:, :8]], 1)),
    "arctangents": between(lambda h: torch.arctan2(h, h + 3)),
    "diagonal": between(lambda h: h * torch.diag(h.t() @ h)),
    "causal": reads(lambda: Causal(nn.Transformer.generate_square_subsequent_mask)),
    "causal, norm first": reads(lambda: Causal(nn.Transformer.generate_square_subsequent_mask, 0.1, True)),
    "window": reads(lambda: Causal(lambda n: torch.ones(n, n, dtype=torch.bool).tril().triu(-2).logical_not())),
    "decoder": reads(Decoder),
    "padding": (lambda: Sequence(Causal(nn.Transformer.generate_square_subsequent_mask)), places, padded),
    "lstm": reads(lambda: nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, dropout=0.2)),
    "gru": reads(lambda: nn.GRU(WIDTH, WIDTH, batch_first=True)),
    "gpt neo x": language(hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig),
    "opt": language(hf.OPTForCausalLM, hf.OPTConfig, ffn_dim=16, word_embed_proj_dim=16),
    "mistral": language(hf.MistralForCausalLM, hf.MistralConfig, num_key_value_heads=1),
    "phi": language(hf.PhiForCausalLM, hf.PhiConfig),
    "gemma": language(hf.GemmaForCausalLM, hf.GemmaConfig, num_key_value_heads=1, head_dim=8),
    "qwen3": language(hf.Qwen3ForCausalLM, hf.Qwen3Config, num_key_value_heads=1, head_dim=8),
    "rnn": reads(lambda: nn.RNN(WIDTH, WIDTH, batch_first=True)),
    "bert": language(hf.BertForMaskedLM, hf.BertConfig),
    "electra": language(hf.ElectraForMaskedLM, hf.ElectraConfig, embedding_size=16),
    "vit": looks(hf.ViTForImageClassification, hf.ViTConfig),
    "deit": looks(hf.DeiTForImageClassification, hf.DeiTConfig),
    "convnext": (
        lambda: hf.ConvNextForImageClassification(
            hf.ConvNextConfig(depths=[1, 1], hidden_sizes=[8, 16], num_stages=2, drop_path_rate=0.2, num_labels=4)
        ),
        classes,
        images,
    ),
    "resnet": (
        lambda: hf.ResNetForImageClassification(
            hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4)
        ),
        classes,
        images,
    ),
    "poolformer": (
        lambda: hf.PoolFormerForImageClassification(
            hf.PoolFormerConfig(
                depths=[1, 1],
                hidden_sizes=[8, 16],
                num_encoder_blocks=2,
                patch_sizes=[7, 3],
                strides=[4, 2],
                padding=[2, 1],
                drop_path_rate=0.1,
                num_labels=4,
            )
        ),
        classes,
        images,
    ),
    "beit": (
        lambda: hf.BeitForImageClassification(
            hf.BeitConfig(**SIZES, image_size=16, patch_size=8, num_labels=4, use_relative_position_bias=True)
        ),
        classes,
        images,
    ),
    "wav2vec2": (lambda: hf.Wav2Vec2ForSequenceClassification(hf.Wav2Vec2Config(**SIZES, **SOUND)), classes, sounds),
    "hubert": (lambda: hf.HubertForSequenceClassification(hf.HubertConfig(**SIZES, **SOUND)), classes, sounds),
    "group norm": (lambda: convolutions(nn.GroupNorm(2, 8), nn.SiLU()), F.cross_entropy, pictures),
    "batch norm": (lambda: convolutions(nn.BatchNorm2d(8), nn.ReLU(True)), F.cross_entropy, pictures),
    "depthwise": (lambda: convolutions(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.GELU()), F.cross_entropy, pictures),
    "channel dropout": (lambda: convolutions(nn.Dropout2d(0.3), nn.Hardswish()), F.cross_entropy, pictures),
    "dilated": (lambda: convolutions(nn.Conv2d(8, 8, 3, 1, 2, 2), nn.Mish()), F.cross_entropy, pictures),
}
