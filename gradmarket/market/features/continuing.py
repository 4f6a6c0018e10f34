"""The fields that a job takes over from the one that it continues."""

import re
from collections.abc import Mapping
from typing import Any, Final

from gradmarket.market.job import JobSpec, Publication

CONTINUES: Final = "continue_from"
_ID: Final = re.compile(r"[0-9a-f]{16}")
_ITS_OWN: Final = ("budget", "growth", "rounds", CONTINUES)


def find_continued(posted: Mapping[str, Any]) -> str | None:
    """Returns the id of the job that a posted one continues; None where it names none, or no valid id."""
    named = posted.get(CONTINUES)
    job = named.get("job") if isinstance(named, Mapping) else named
    return job if isinstance(job, str) and _ID.fullmatch(job) else None


def fill_fields(posted: Mapping[str, Any], before: JobSpec, publication: Publication | None) -> dict[str, Any]:
    """Returns the posted job with the fields that it leaves out of the one before; rounds and budget are its own.

    It has as many tasks in each round as that job in its last ones.
    """
    fields = {name: value for name, value in before.model_dump(mode="json").items() if name not in _ITS_OWN}
    fields |= {"tasks_per_round": before.sizes.most, "deadlines": fields["deadlines"] | {"end": None}}
    if publication is not None:
        parts = ("document", "parameters", "evaluation", "metrics")
        fields["model"] = {part: digest for part in parts if (digest := getattr(publication, part)) is not None}
    return fields | dict(posted)
