"""Calls of the documents' operators, honest and damaged ones, and the checks around them."""
