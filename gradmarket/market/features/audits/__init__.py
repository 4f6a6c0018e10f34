"""Audits: which accepted answers are computed again, and whose copied another."""
