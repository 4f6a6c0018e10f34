"""The child that also publishes ready architectures: its imports take nearly as long as torch's own.

process.py runs it as `python -I -m gradmarket.runner.publishing <configuration as JSON>`.
"""

from gradmarket.market.data.manifest import Labelled
from gradmarket.runner.publication import publish_ready
from graphdoc.runner.child import RequestHandler, main
from graphdoc.runner.serving import Configuration, Request
from graphdoc.tensors import pack


class PublishingHandler(RequestHandler):
    """Handles `publish` too."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.answers["publish"] = self._publish

    def _publish(self, request: Request) -> list[int]:
        """Returns the lengths of the two documents and the parameters, which it writes into the arena."""
        data = Labelled.model_validate(request["data"])
        chosen = request["architecture"], request["arguments"], data, request["seed"], request["precision"]
        published = publish_ready(*chosen)
        parts = (published.document, published.evaluation, pack(published.parameters))
        self.arena.write_bytes(parts)
        return [len(part) for part in parts]


if __name__ == "__main__":
    main(PublishingHandler)
