"""Webhooks as values: what is sent, how it is signed, and when it is sent again."""
