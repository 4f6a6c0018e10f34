"""Models of the transformers library, built from small configurations: nothing is downloaded."""

from typing import Any

from torch import nn

from tests.kit.late_module import LateModule

transformers: Any = LateModule("transformers")

SMALL = {"vocab_size": 17, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 16}
WORDS = {"bos_token_id": None, "eos_token_id": None}


def gpt2() -> nn.Module:
    sizes = {"vocab_size": 17, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **WORDS, use_cache=False))


def llama() -> nn.Module:
    sizes = {**SMALL, "num_key_value_heads": 1, "max_position_embeddings": 16}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **WORDS, use_cache=False))


def bert() -> nn.Module:
    return transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL, max_position_embeddings=16))


def vit() -> nn.Module:
    sizes = {name: size for name, size in SMALL.items() if name != "vocab_size"}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, image_size=16, patch_size=8))
