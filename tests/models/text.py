"""Networks over tokens, int64[rows, length], as textbooks have them and small."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class Recurrent(nn.Module):
    """Embedding, a stack of recurrent layers, and a word for every place."""

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], words: int, width: int, both_ways: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.cells = cell(width, width, num_layers=2, batch_first=True, bidirectional=both_ways)
        self.head = nn.Linear(width * (2 if both_ways else 1), words)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(self.embedding(x))[0])


class Attention(nn.Module):
    """Causal attention by torch's fused operator, with dropout inside it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.entry, self.exit = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.entry(x).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(*parts.unbind(0), dropout_p=dropout, is_causal=True)
        return self.exit(mixed.transpose(1, 2).reshape(rows, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """GPT-2's shape (Radford et al. 2019): learned places, norms first, the head tied to the embedding."""

    def __init__(self, words: int, length: int, width: int, depth: int, heads: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        hidden = self.dropout(self.embedding(x) + self.places(places))
        return self.head(self.norm(self.blocks(hidden)))


class Masked(nn.Module):
    """An encoder with a mask of padding tokens, which averages over the others."""

    def __init__(self, words: int, width: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        hidden = self.encoder(self.embedding(tokens), src_key_padding_mask=~mask)
        kept = mask.unsqueeze(-1).to(hidden.dtype)
        return self.head((hidden * kept).sum(1) / kept.sum(1).clamp(min=1))


class Translator(nn.Module):
    """torch's own encoder and decoder (Vaswani et al. 2017), with sines for places."""

    def __init__(self, words: int, length: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
        angles = torch.arange(length).unsqueeze(1) * rates
        self.register_buffer("places", torch.stack([angles.sin(), angles.cos()], -1).flatten(1), persistent=False)
        self.transformer = nn.Transformer(width, 2, 1, 1, 2 * width, 0.1, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        hidden = self.embedding(x) + self.get_buffer("places")[:length]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=x.device)
        return self.head(self.transformer(hidden, hidden, tgt_mask=mask, tgt_is_causal=True))


class Experts(nn.Module):
    """A mixture of experts with dense routing: every expert computes, the two best of each token count."""

    def __init__(self, words: int, width: int, experts: int) -> None:
        super().__init__()
        self.embedding, self.router = nn.Embedding(words, width), nn.Linear(width, experts)
        self.entry = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.exit = nn.Parameter(torch.randn(experts, 2 * width, width) / width**0.5)
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding(x)
        best, chosen = self.router(hidden).topk(2, -1)
        gates = torch.zeros_like(self.router(hidden)).scatter(-1, chosen, best.softmax(-1))
        inner = functional.gelu(torch.einsum("blw,ewh->bleh", hidden, self.entry))
        return self.head(torch.einsum("bleh,ehw,ble->blw", inner, self.exit, gates))


class Lora(nn.Module):
    """A frozen layer and a trained update of low rank (Hu et al. 2022)."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / rank)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + functional.linear(functional.linear(x, self.down), self.up)


class Autocast(nn.Module):
    """Any module in bfloat16 by the rules of torch.autocast; its answer is float32."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            answer = self.module(x)
        return answer.float()
