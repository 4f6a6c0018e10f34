"""Calls of the documents' operators: honest ones, damaged ones, and what is watched while they are made."""
