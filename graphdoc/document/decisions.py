"""Decisions that torch makes by a tensor's values before it computes: a trace has no values, so it repeats recorded
ones.

`nn.TransformerEncoder` and `nn.TransformerDecoder` check whether a mask is the causal one. The module is run once on
the example, and each decision is repeated in its order while it is traced. A decision that depends on the data would
show as other bits where document and module are compared.

A function of torch's is replaced for the tracing thread alone: other threads call torch's own. Where two trace at a
time, functions may not be restored in order: threads that publish take turns (sdk.model).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules import transformer

from graphdoc.document.equality import restore_buffers

_TRACES: Final = ContextVar("traces", default=False)


@contextmanager
def exchange_function(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Replaces the owner's function of this name by `function` within the block."""
    before = getattr(owner, name)

    def chosen(*arguments: Any, **named: Any) -> Any:
        return (function if _TRACES.get() else before)(*arguments, **named)

    setattr(owner, name, chosen)
    outer = _TRACES.set(True)
    try:
        yield
    finally:
        _TRACES.reset(outer)
        setattr(owner, name, before)


_DECIDES: Final = "_detect_is_causal_mask"


def capture_decisions(module: nn.Module, data: Mapping[str, Tensor]) -> Callable[[], AbstractContextManager[None]]:
    """Returns the context in which a trace of `module`, which takes `data`, runs."""
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
