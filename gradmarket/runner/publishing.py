"""The child that also publishes ready architectures: its imports take nearly as long as torch's own.

market_runner.py runs it as `python -I -m gradmarket.runner.publishing <configuration as JSON>`.
"""

from typing import Any

from gradmarket.market.errors import JobRefused
from gradmarket.market.manifest import Labelled
from gradmarket.runner.architectures import publish_ready
from gradmarket.runner.step_child import StepHandler
from graphdoc.runner.child import serve_by
from graphdoc.runner.serving import Configuration, Request
from graphdoc.tensors import pack_tensors


class PublishingHandler(StepHandler):
    """Handles `publish` too."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.answers["publish"] = self._publish_architecture

    def _publish_architecture(self, request: Request) -> list[int] | dict[str, Any]:
        """Returns the lengths of the documents and the parameters, which it writes into the arena; 0 for no metrics.

        Where a field of the job is at fault, returns its name and the fault.
        """
        data = Labelled.model_validate(request["data"])
        chosen = (
            request["architecture"],
            request["arguments"],
            data,
            request["seed"],
            request["precision"],
            request["metrics"],
        )
        try:
            published = publish_ready(*chosen)
        except JobRefused as error:
            return {"field": error.field, "detail": error.detail.removeprefix(f"{error.field}: ")[:500]}
        parts = (published.document, published.evaluation, published.metrics or b"", pack_tensors(published.parameters))
        self.arena.write_bytes(parts)
        return [len(part) for part in parts]


def serve() -> None:
    """Serves steps, documents and ready architectures."""
    serve_by(PublishingHandler)


if __name__ == "__main__":
    serve()
