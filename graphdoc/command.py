"""The commands of `python -m graphdoc`: check, run and export. A mistake is one sentence and the exit code 1."""

import json
import math
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TextIO, get_args

from graphdoc import tensors
from graphdoc.cost import gradient_cost
from graphdoc.document.graph import WEIGHT, Arithmetic, Precision
from graphdoc.document.inputs import check_batch
from graphdoc.document.schema import set_arithmetic
from graphdoc.errors import GraphdocError, Refused
from graphdoc.runner import DocumentRunner, RunnerSettings
from graphdoc.values import check_labels

MIB: Final = 2**20
LONGEST_S = 1_000_000
LEAST_MEMORY: Final = 256
"""MiB with which a child has room for torch's own memory."""


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0, 1 for a mistake in the input, 2 for one in the command line."""
    parser = ArgumentParser("python -m graphdoc", description="Models as checked JSON, run in a confined child.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="what a document computes, and what a run of it costs")
    check.add_argument("--rows", type=_count, default=1, help="rows of the run that is bounded (1)")
    check.set_defaults(command=check_document)
    run = commands.add_parser("run", help="loss and metrics of a document over rows, in a confined child")
    run.add_argument("--inputs", type=Path, required=True, help="the rows, as safetensors: an array for each input")
    run.add_argument("--parameters", type=Path, help="the state, as safetensors")
    run.add_argument("--out", type=Path, help="safetensors to write: loss, gradients and new buffers of a training run")
    run.add_argument("--at-once", type=_count, help="rows of one pass of a training run (all)")
    run.add_argument("--seed", type=_seed, default=bytes(32), help="64 hexadecimal digits, for dropout (zeros)")
    run.set_defaults(command=run_document)
    for command in (check, run):
        command.add_argument("document", type=Path, help="a graph document, canonical JSON")
        command.add_argument("--arithmetic", choices=get_args(Arithmetic), help="other than the document's own")
        command.add_argument("--memory", type=_memory, default=4096, help="MiB that a pass may take (4096)")
        command.add_argument("--seconds", type=_seconds, default=120, help="wall time of a run (120)")
    export = commands.add_parser("export", help="a torch.nn.Module as documents, compared with it bit by bit")
    export.add_argument("module", help="FILE.py:NAME, a module or what makes one when called; FILE.py is executed here")
    export.add_argument("--data", type=Path, required=True, help="two rows or more, as safetensors; y is the target")
    export.add_argument("--loss", required=True, help="a function of FILE.py or of torch.nn.functional")
    export.add_argument("--precision", choices=get_args(Precision), default="fp32")
    export.add_argument("--out", type=Path, required=True, help="folder to write")
    export.set_defaults(command=lambda given: import_module("graphdoc.export_command").export(given))
    given = parser.parse_args(arguments)
    try:
        for line in given.command(given):
            _show(line, sys.stdout)
    except GraphdocError as error:
        message = error.detail if type(error) is Refused else str(error)
        return _fail(f"{message}; {error.remedy}" if error.remedy else message)
    except OSError as error:
        return _fail(f"{error.filename or 'the system'}: {error.strerror or error}")
    return 0


def _fail(sentence: str) -> int:
    _show("graphdoc: " + " ".join(sentence.split()), sys.stderr)
    return 1


def _show(line: str, stream: TextIO) -> None:
    """Prints the line; a control character in untrusted text steers no terminal."""
    print("".join(letter if letter.isprintable() else "?" for letter in line), file=stream)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 2**31):
        raise ArgumentTypeError(f"{text[:40]} is no whole number from 1 on")
    return int(text)


def _seconds(text: str) -> int:
    if _count(text) > LONGEST_S:
        raise ArgumentTypeError(f"a run takes {LONGEST_S} seconds or fewer")
    return int(text)


def _memory(text: str) -> int:
    if _count(text) < LEAST_MEMORY:
        raise ArgumentTypeError(f"a child starts with {LEAST_MEMORY} MiB or more")
    return int(text)


def _seed(text: str) -> bytes:
    try:
        seed = bytes.fromhex(text)
    except ValueError:
        seed = b""
    if len(seed) != 32:
        raise ArgumentTypeError(f"{text[:80]} is not 64 hexadecimal digits")
    return seed


def check_document(given: Namespace) -> Iterator[str]:
    """Yields lines on the document's inputs, computation and answers, and on the cost of a run over `rows` rows."""
    data = _read_document(given)
    with _runner(given) as runner:
        document = runner.load(data)
        bound = runner.bound(given.rows)
        forward = runner.bound_evaluation(data, given.rows)
        ranges = runner.ranges(given.rows)
    yield f"{given.document}: a valid document, {document.digest}"
    state = tuple(document.of("param", "buffer", "const"))
    yield f"state: {sum(entry.elements for entry in state):,} numbers in {len(state)} tensors"
    data_inputs = []
    for entry in document.of("data"):
        names = dict(entry.named)
        sizes = (f"{names[place]}≤{size}" if place in names else str(size) for place, size in enumerate(entry.shape))
        data_inputs.append(f"{entry.name} {entry.dtype}[{', '.join(('rows', *sizes))}]")
    yield f"data: {', '.join(data_inputs)}"
    counted = Counter(node.op for node in document.written)
    operators = ", ".join(f"{count} {op}" if count > 1 else op for op, count in sorted(counted.items()))
    yield f"operators: {operators}; {document.calls} calls a pass, in {document.precision}, {document.arithmetic}"
    answers = [
        "loss",
        *document.metrics,
        f"{len(document.trainable)} gradients",
        *([f"{len(document.updates)} new buffers"] if document.updates else []),
        *(["the rows' weight"] if document.weight is not None else []),
    ]
    yield f"answers: {', '.join(answers)}"
    rows = given.rows
    whole = gradient_cost(document, bound, rows, rows)
    yield f"forward over {rows} rows: {forward.operations:,} operations, {_size(forward.peak_bytes)}"
    yield f"forward and backward: {bound.operations:,} operations, {_size(bound.peak_bytes)}"
    yield f"the child then takes {_size(whole.memory)}, and {_size(bound.idle_bytes)} when idle"
    if bound.only_on_cpu:
        yield f"only on a CPU: {bound.only_on_cpu}"
    for name, each in sorted(ranges.items()):
        for one in each:
            ignored = "" if one.ignored is None else f", and {one.ignored} for none"
            place = f" at place {', '.join(map(str, one.columns[:8]))}" if one.columns else ""
            yield f"{name}{place} takes {one.least} to {one.end - 1}{ignored}"


def run_document(given: Namespace) -> Iterator[str]:
    """Yields loss and metrics as JSON; with `out` the loss of a training run, whose arrays go into that file."""
    data, batch = _read_document(given), _arrays(given.inputs)
    state = {} if given.parameters is None else _arrays(given.parameters)
    with _runner(given) as runner:
        document = runner.load(data)
        rows = check_batch(document, batch)
        if document.state and given.parameters is None:
            raise Refused(f"the document has a state ({', '.join(document.state)[:200]}): give it by --parameters")
        check_labels(batch, runner.ranges(rows))
        if given.out is None:
            metrics = runner.evaluate(data, state, batch)
            yield _line({"rows": rows, "loss": metrics.loss, "metrics": metrics.values})
            return
        answer = runner.run(state, batch, given.seed, given.at_once or rows)
    weight = answer.pop(WEIGHT, None)
    given.out.write_bytes(tensors.pack_tensors(answer))
    yield _line({"rows": rows, "loss": float(answer["loss"])} | ({} if weight is None else {"weight": float(weight)}))


def _read_document(given: Namespace) -> bytes:
    data = bytes(given.document.read_bytes())
    if not data:
        raise Refused(f"{given.document} is empty: it has no document")
    return data if given.arithmetic is None else set_arithmetic(data, given.arithmetic)


def _runner(given: Namespace) -> DocumentRunner:
    return DocumentRunner(RunnerSettings(memory_bytes=given.memory * MIB, seconds=float(given.seconds)))


def _arrays(path: Path) -> dict[str, Any]:
    try:
        return tensors.unpack_tensors(path.read_bytes())
    except GraphdocError as error:
        raise Refused(f"{path}: {error.detail}") from None


def _line(values: Mapping[str, Any]) -> str:
    """Returns the values as JSON, in which a number that is not finite is a word."""

    def finite(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: finite(one) for name, one in value.items()}
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(finite(values))


def _size(count: int) -> str:
    return f"{count / MIB:,.0f} MiB" if count >= 10 * MIB else f"{count / 2**10:,.0f} KiB"
