"""`gradmarket errors`: every kind of problem that the API answers with, generated from the code."""

from dataclasses import asdict
from typing import Final

from gradmarket.commands.edge import JsonOption, print_json
from gradmarket.terminal import echo_text
from requester.api.problem_kinds import ProblemKind, list_problem_kinds

HEAD: Final = """# Errors

The API answers errors as problem details (RFC 9457, `application/problem+json`). `type` is one of these kinds,
as `/errors#` and its name, relative to the service's address, where the same list is a page. `title` and `status` are
HTTP's. `detail` describes the fault, `remedy` its fix, and `errors` lists `field` and `detail` of each
field at fault. A poll's answer names refusals of single messages by the same words (`code`). This page is made by
`gradmarket errors > docs/errors.md`; the remedy is slanted.

"""


def errors(as_json: JsonOption = False) -> None:
    """List every kind of problem that the API answers with: its status, its meaning and its remedy."""
    print_json([asdict(kind) for kind in list_problem_kinds()]) if as_json else echo_text(build_errors_page(), nl=False)


def build_errors_page() -> str:
    """Returns the Markdown of docs/errors.md."""
    return HEAD + "".join(map(_format_problem_line, list_problem_kinds()))


def _format_problem_line(kind: ProblemKind) -> str:
    return f"- `{kind.code}` ({kind.status.value}): {kind.meaning} *{kind.remedy}*\n"
