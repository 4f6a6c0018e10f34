"""Fields in which jobs differ."""

from collections.abc import Mapping, Sequence
from typing import Any


def list_fields(spec: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Returns a job's fields by their paths, such as optimizer.lr; lists are values."""
    found: dict[str, Any] = {}
    for name, value in spec.items():
        path = f"{above}{name}"
        found |= list_fields(value, f"{path}.") if isinstance(value, Mapping) and value else {path: value}
    return found


def list_differences(specs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Returns, by field, the value of each job where not all are alike; None where a job does not have the field."""
    each = [list_fields(spec) for spec in specs]
    paths = dict.fromkeys(path for fields in each for path in fields)
    values = {path: [fields.get(path) for fields in each] for path in paths}
    return {path: of_all for path, of_all in values.items() if any(one != of_all[0] for one in of_all)}
