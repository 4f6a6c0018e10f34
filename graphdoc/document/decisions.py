"""What torch decides by a tensor's values before it computes: a trace has no values, so it is told what was decided.

`nn.TransformerEncoder` and `nn.TransformerDecoder` look whether a mask is the causal one. The module is run once on the
example, and each decision is repeated in its order while it is traced. A decision that depends on the data would show
as other bits where document and module are compared.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules import transformer

from graphdoc.document.equality import restore_buffers
from graphdoc.document.exchanged import exchange_function

_DECIDES: Final = "_detect_is_causal_mask"


def capture_decisions(module: nn.Module, data: Mapping[str, Tensor]) -> Callable[[], AbstractContextManager[None]]:
    """Returns what a trace of `module`, which takes `data`, runs in."""
    if not any(isinstance(part, nn.TransformerEncoder | nn.TransformerDecoder) for part in module.modules()):
        return nullcontext
    decided: list[bool] = []
    before = getattr(transformer, _DECIDES)

    def noted(*arguments: Any, **named: Any) -> bool:
        decided.append(bool(before(*arguments, **named)))
        return decided[-1]

    with (
        restore_buffers(module.buffers()),
        torch.random.fork_rng(devices=[]),
        exchange_function(transformer, _DECIDES, noted),
    ):
        module(dict(data))

    @contextmanager
    def repeated() -> Iterator[None]:
        waiting = iter(decided)
        with exchange_function(transformer, _DECIDES, lambda *_arguments, **_named: next(waiting)):
            yield

    return repeated
