"""The child that computes a market's steps as well as documents.

market_runner.py runs it as `python -I -m gradmarket.runner.step_child <configuration as JSON>`.
"""

from typing import Any, Final

from pydantic import TypeAdapter

from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.step import PAYLOAD, TaskStep
from gradmarket.runner.device_codecs import estimate_packing_bytes
from gradmarket.runner.steps import compute_payload, compute_step
from gradmarket.runner.task_cost import compute_task_cost
from graphdoc.document.meter import Limits
from graphdoc.passes import hold_state
from graphdoc.runner.child import RequestHandler, serve_by
from graphdoc.runner.serving import Configuration, Request

_STEP: Final[TypeAdapter[TaskStep]] = TypeAdapter(TaskStep)


def read_step(value: object) -> TaskStep:
    """Returns the step of a request."""
    return _STEP.validate_python(value)


class StepHandler(RequestHandler):
    """Handles `compute` too."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.answers["compute"] = self._compute

    def _compute_bound(self, request: Request) -> dict[str, Any]:
        bound = super()._compute_bound(request)
        if self.configuration.device != "cpu" and request["training"]:
            bound["peak_bytes"] += estimate_packing_bytes(build_layout(self.programs[request["digest"]].document))
        return bound

    def _compute(self, request: Request) -> None:
        program = self.programs[request["digest"]]
        step = read_step(request["step"])
        state, batch = self.views(request["state"]), self.views(request["batch"])
        bounded = self.admit(program, batch, step.pass_sizes, Limits(*request["limits"]), True, step.by_row)
        with self.allowed(program, compute_task_cost(program.document, bounded, step), step.passes):
            seed = bytes.fromhex(request["seed"])
            hold_state(program, request["held"], state, self.configuration.device)
            places = self.views(request["result"])
            task = program, state, batch, seed, step, self.configuration.device
            if PAYLOAD in places:
                compute_payload(*task, request["codec"], places[PAYLOAD])
            else:
                compute_step(*task, places)


def serve() -> None:
    """Serves steps as well as documents."""
    serve_by(StepHandler)


if __name__ == "__main__":
    serve()
