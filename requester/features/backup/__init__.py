"""Copies of the embedded service's folder while it serves; gradmarket.commands.features.backup has the commands."""

from requester.feature import Feature


class BackupFeature(Feature):
    name = "backup"
    needs = ("log",)
