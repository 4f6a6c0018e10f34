"""`gradmarket webhook`: signed posts to an address about a token's jobs."""

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from gradmarket import terminal
from gradmarket.commands.edge import DataOption, JsonOption, MarketOption, TokenOption, print_json
from gradmarket.endpoint import find_endpoint
from gradmarket.market.features.webhooks import HAPPENINGS
from gradmarket.market.views.service_views import USUAL, WebhookView
from gradmarket.terminal import echo_text

app = typer.Typer(no_args_is_help=True, help="Webhooks: news of your jobs, posted to an address.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The webhook's id, of `webhook list`.")]


@app.command()
def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="Takes the webhooks by POST.")],
    on: Annotated[
        list[str] | None, typer.Option(help=f"A happening to post, again for more: {', '.join(HAPPENINGS)}.")
    ] = None,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a webhook and print its secret, which is shown only once."""
    with find_endpoint(market, token, data).market() as client:
        made = client.create_webhook(url, on or USUAL)
    if as_json:
        print_json(made)
        return
    echo_text(f"webhook {made.id}: {', '.join(made.happenings)}; its secret is shown this once:", err=True)
    echo_text(made.secret)


@app.command("list")
def listed(
    market: MarketOption = None, token: TokenOption = None, data: DataOption = None, as_json: JsonOption = False
) -> None:
    """The token's webhooks, without their secrets, and why the last try failed."""
    with find_endpoint(market, token, data).market() as client:
        webhooks = list(client.webhooks())
    if as_json:
        print_json(webhooks)
        return
    terminal.print_table(build_table(webhooks))


def build_table(webhooks: Iterable[WebhookView]) -> Table:
    table = Table("id", "address", "told", "delivered", "waiting", "trouble")
    for one in webhooks:
        cells = (one.id, one.url, " ".join(one.happenings), one.delivered_at or "", str(one.waiting), one.trouble)
        table.add_row(*map(escape, cells))
    return table


@app.command()
def ping(
    webhook: IdArgument,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Post a webhook of the type `ping` as a try."""
    with find_endpoint(market, token, data).market() as client:
        asked = client.ping_webhook(webhook)
    if as_json:
        print_json(asked)
    else:
        echo_text(f"A ping goes to {asked.url}; `gradmarket webhook list` shows whether it arrived.")


@app.command()
def remove(
    webhook: IdArgument,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Post nothing more there."""
    with find_endpoint(market, token, data).market() as client:
        client.delete_webhook(webhook)
    if as_json:
        print_json({"removed": webhook})
    else:
        echo_text(f"The webhook {webhook} is removed.")
