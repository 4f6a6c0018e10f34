"""A child's module whose import starts a thread: no process that has it may fork."""

import threading

from tests.graphdoc import hostile_child

threading.Thread(target=threading.Event().wait, daemon=True).start()


def serve() -> None:
    hostile_child.serve()


if __name__ == "__main__":
    serve()
