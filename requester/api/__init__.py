"""The HTTP routes: they authenticate requests and call exchange, moves and store, but decide nothing themselves."""
