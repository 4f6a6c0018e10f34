"""Around the doors: what every request passes before one opens. Pure ASGI; no work for each chunk of a body."""
