"""Middleware and protocols that every request passes before a route. Pure ASGI; no work for each chunk of a body."""
