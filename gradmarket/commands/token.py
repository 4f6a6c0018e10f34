"""`gradmarket token`: API tokens with a name, a role and an expiry."""

import re
from secrets import token_hex
from typing import Annotated, Final

import typer
from rich.table import Table

from gradmarket import terminal
from gradmarket.commands.edge import DataOption, JsonOption, MarketOption, TokenOption, print_json
from gradmarket.endpoint import find_endpoint
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.fields import PATTERNS, TOKEN_NAME
from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Role
from gradmarket.market.views.service_views import DAY_S, LONGEST_DAYS
from gradmarket.terminal import echo_text

app = typer.Typer(no_args_is_help=True, help="API tokens: make, list and end them. Needs a token of the role admin.")

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LASTS_AT_MOST_S: Final = LONGEST_DAYS * DAY_S
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, dots, dashes: its purpose.")]


@app.command()
def create(
    name: NameArgument,
    role: Annotated[
        Role,
        typer.Option(
            help="read; submit: also upload, and post and steer its own jobs; audit: run an auditor; admin: all of it."
        ),
    ],
    expires: Annotated[str, typer.Option(help="How long it lasts: 12h, 30d, or never.")] = "90d",
    budget: Annotated[str | None, typer.Option(help='Its budget of a day, such as "10 GRAD".')] = None,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token and print its secret, which is shown only once."""
    with find_endpoint(market, token, data).market() as client:
        lasts = parse_expiry_seconds(expires)
        info = client.create_token(_check_token_name(name), role, lasts)
        if budget is not None:
            try:
                client.limit_spending(info.name, budget)
            except MarketError:
                client.revoke_token(info.name)  # its secret was never shown
                raise
    if as_json:
        print_json(info)
        return
    echo_text(f"{info.role} token {info.name}, {_describe_expiry(info.expires_at)}; it is shown this once:", err=True)
    echo_text(info.token)


@app.command("page")
def page(
    role: Annotated[Role, typer.Option(help="The token's role; see `token create`.")] = Role.SUBMIT,
    expires: Annotated[str, typer.Option(help="How long it lasts: 12h, 30d, or never.")] = "12h",
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token for a browser and print the page's address that brings it there, which is sent to nobody."""
    endpoint = find_endpoint(market, token, data)
    with endpoint.market() as client:
        info = client.create_token(f"page-{token_hex(4)}", role, parse_expiry_seconds(expires))
    address = f"{endpoint.url}/submit#token={info.token}"
    if as_json:
        print_json({"name": info.name, "address": address})
        return
    echo_text(f"{info.role} token {info.name}, {_describe_expiry(info.expires_at)}; open this in a browser:", err=True)
    echo_text(address)


@app.command()
def limit(
    name: NameArgument,
    a_day: Annotated[
        str | None, typer.Argument(metavar="AMOUNT", help='Its budget of a day: "10 GRAD", or any.')
    ] = None,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a token's budget for any 24 hours and the rest of it; with an amount, set it."""
    with find_endpoint(market, token, data).market() as client:
        limited = client.limit_spending(_check_token_name(name), None if a_day == "any" else a_day) if a_day else None
        shown, unit = limited or client.spending(_check_token_name(name)), TokenUnit.of(client.chain())
    if as_json:
        print_json(shown.model_dump(mode="json"))
        return
    spent = f"{unit.text(shown.spent)} spent in 24 hours"
    if shown.a_day is None or shown.left is None:
        echo_text(f"The token {name} may spend any amount; {spent}.")
    else:
        echo_text(f"The token {name} may spend {unit.text(shown.a_day)} a day; {spent}, {unit.text(shown.left)} left.")


@app.command("list")
def listed(
    market: MarketOption = None, token: TokenOption = None, data: DataOption = None, as_json: JsonOption = False
) -> None:
    """Every token by its name, without its secret."""
    with find_endpoint(market, token, data).market() as client:
        tokens = list(client.tokens())
    if as_json:
        print_json(tokens)
        return
    table = Table("name", "role", "made", "ends")
    for entry in tokens:
        table.add_row(entry.name, entry.role, entry.created_at or "", entry.expires_at or "never")
    terminal.print_table(table)


@app.command()
def revoke(
    name: NameArgument,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a token at once."""
    with find_endpoint(market, token, data).market() as client:
        client.revoke_token(_check_token_name(name))
    if as_json:
        print_json({"revoked": name})
    else:
        echo_text(f"The token {name} has ended.")


def parse_expiry_seconds(text: str) -> int | None:
    """Parses "90s", "30m", "12h" or "30d" to seconds; None for "never". Raises Refused for anything else."""
    if text == "never":
        return None
    parsed = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if parsed is None or int(parsed[1]) == 0:
        raise Refused(f"--expires {text}: write a number and s, m, h or d, such as 30d, or never")
    seconds = int(parsed[1]) * UNITS[parsed[2]]
    if seconds > LASTS_AT_MOST_S:
        raise Refused(f"--expires {text}: {LASTS_AT_MOST_S // DAY_S}d at most, or never")
    return seconds


def _check_token_name(name: str) -> str:
    if not re.fullmatch(TOKEN_NAME, name):
        raise Refused(f"{name!r}: {PATTERNS[TOKEN_NAME]}", "name it otherwise")
    return name


def _describe_expiry(expires_at: str | None) -> str:
    return f"until {expires_at}" if expires_at else "without an end"
