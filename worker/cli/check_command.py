"""`gradmarket worker check`: what this machine would compute on, before it works for anybody."""

import typer

from gradmarket.compute.card_checks import check_cards
from gradmarket.compute.own_machine import open_runners
from worker.journal import Journal
from worker.options import DeviceOption, JsonOption, settings_of
from worker.protocol.own_limits import runner_settings


def check(device: DeviceOption = None, as_json: JsonOption = False) -> None:
    """Start cards and the computing child as `run` does; show card, memory, class and what is wrong. Ends with 1 then.

    Works for no market and opens no wallet.
    """
    settings, journal = settings_of(device=device), Journal(as_json)
    findings = [] if settings.device == "cpu" else list(check_cards())
    for one in findings:
        fix = f" Fix: {one.fix}." if one.fix else ""
        journal.say("card", f"{one.name}: {one.told}.{fix}", name=one.name, told=one.told, fix=one.fix)
    wanted = runner_settings(settings), settings.device, settings.threads, settings.max_memory
    with open_runners(*wanted) as (mine, *others):
        name, missing = mine.runner.determinism_class(), mine.runner.missing()
        without = f" Its child runs without: {', '.join(missing)}." if missing else ""
        limits = f" A step may take {mine.runner.settings.memory_bytes / 2**30:.1f} GiB (--max-memory)."
        facts = {"device": mine.device, "threads": mine.threads, "class": name, "missing": list(missing)}
        journal.say("machine", f"{mine.text} Its class is {name}.{limits}{without}", **facts)
        for one in others:
            journal.say("machine", f"{one.text} Its class is the same.", device=one.device, threads=one.threads)
        if mine.warning:
            journal.say("card", mine.warning, why=mine.why)
    raise typer.Exit(1 if any(one.fix for one in findings) else 0)
