"""`gradmarket data …`: packs a researcher's own rows into partitions, and uploads them."""

import re
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import ValidationError

from gradmarket.commands.edge import DataOption, JsonOption, MarketOption, TokenOption, print_json
from gradmarket.commands.upload_progress import display_upload
from gradmarket.data import image_folders, sources, token_rows
from gradmarket.data.inputs import Arrays, pick_columns, select_inputs
from gradmarket.data.pack import HELD_OUT, PARTITION_ROWS, Cut, Packed, pack_dataset, write_dataset
from gradmarket.data.tables import build_encoding
from gradmarket.endpoint import find_endpoint
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.fields import first_fault
from gradmarket.market.manifest import MANIFEST, Encoding, Manifest, TextEncoding
from gradmarket.market.terms import blob_digest
from gradmarket.network.environment import is_address
from gradmarket.terminal import echo_text
from gradmarket.user_files import parse_place
from graphdoc import formats

INTERRUPTED: Final = "Interrupted: the same command within an hour goes on where it broke off."
FORMATS: Final = ", ".join(formats.list_format_names())

app = typer.Typer(no_args_is_help=True)


@app.command("pack")
def packing(
    source: Annotated[
        Path,
        typer.Argument(
            parser=parse_place,
            metavar="SOURCE",
            help="npz, npy, safetensors, parquet, csv, jsonl; a saved dataset's folder; a folder of pictures for each "
            "class; with --length txt or md, or a folder of them.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")],
    rows: Annotated[int, typer.Option("--rows-per-partition", min=1, help="At most.")] = PARTITION_ROWS,
    kind: Annotated[str, typer.Option("--format", help=FORMATS)] = formats.DEFAULT,
    target: Annotated[str | None, typer.Option(help="Column that becomes y; x is all others, side by side.")] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="NAME=COLUMN,…", help="An input from these columns; repeat.")
    ] = None,
    held_out: Annotated[float, typer.Option(help="Fraction of the rows that becomes the partition test.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the shuffle.")] = 0,
    base_url: Annotated[
        str | None, typer.Option(help="Where a static server has the folder; else the requester's blobs.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(min=1, help="How many the model has: a label of y beyond them is refused.")
    ] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Of text: tokens in a row.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Of text: a file of the package tokenizers; else each byte is a token.")
    ] = None,
    size: Annotated[str | None, typer.Option(metavar="HEIGHTxWIDTH", help="Of pictures: scale all to it.")] = None,
    grey: Annotated[bool, typer.Option("--grey", help="Of pictures: one channel, not three.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Cut a dataset into partitions with a manifest; the same rows and options give the same bytes."""
    given, wanted = _parse_columns(inputs or []), classes
    if base_url is not None and not is_address(base_url):
        raise Refused(f"--base-url {base_url[:200]!r} is no address", "write it like https://rows.example/packed")
    encoding: Encoding | TextEncoding | None
    if length is not None or source.suffix in token_rows.SUFFIXES:
        if length is None:
            raise Refused(f"{source}: name how many tokens a row has, such as --length 64")
        written = token_rows.load_text_rows(
            token_rows.Text(source, length, tokenizer and token_rows.load_tokenizer(tokenizer))
        )
        arrays, encoding, wanted = written.arrays, written.encoding, classes or written.encoding.vocabulary
    elif tokenizer is not None:
        raise Refused(f"--tokenizer applies to text, and {source} is not text: leave it out, or add --length 64")
    elif image_folders.is_image_folder(source):
        pictures = image_folders.load_image_rows(
            image_folders.Images(source, _parse_size(size), "L" if grey else "RGB")
        )
        arrays, encoding = pictures.arrays, pictures.encoding
    elif size is not None or grey:
        raise Refused(f"--size and --grey apply to a folder with a folder of pictures for each class, not to {source}")
    else:
        columns = sources.load_columns(source, target)
        arrays = dict(select_inputs(columns.arrays, given, target))
        picked = pick_columns(list(columns.arrays), given, target)
        encoding = build_encoding(picked, columns.categories) if columns.categories else None
    packed = _pack_arrays(source, arrays, Cut(rows, kind, held_out, seed, base_url, wanted), encoding)
    write_dataset(packed, output)
    partitions = packed.manifest.partitions
    facts = {
        "manifest": packed.digest,
        "path": str(output / MANIFEST),
        "partitions": len(partitions),
        "rows": sum(partition.rows for partition in partitions),
        "bytes": sum(partition.bytes for partition in partitions),
    }
    print_json(facts) if as_json else echo_text(
        f"{output}  {facts['partitions']} partitions, {facts['rows']} rows, {facts['bytes']} bytes\n{packed.digest}"
    )


def _parse_size(written: str | None) -> tuple[int, int] | None:
    if written is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,4})(?:x([1-9][0-9]{0,4}))?", written)
    if match is None:
        raise Refused(f"--size {written}: write HEIGHTxWIDTH in pixels, such as 32x32")
    return int(match[1]), int(match[2] or match[1])


def _pack_arrays(source: Path, arrays: Arrays, cut: Cut, encoding: Encoding | TextEncoding | None) -> Packed:
    try:
        return pack_dataset(arrays, cut, encoding)
    except Refused as error:
        raise Refused(f"{source}: {error.detail}") from error


def _parse_columns(inputs: list[str]) -> dict[str, list[str]]:
    pairs = [text.partition("=") for text in inputs]
    if any(not name or not columns for name, _, columns in pairs):
        raise Refused("write an input as NAME=COLUMN or NAME=COLUMN,COLUMN")
    return {name: columns.split(",") for name, _, columns in pairs}


@app.command()
def upload(
    folder: Annotated[Path, typer.Argument(parser=parse_place, metavar="FOLDER", help="The folder of `data pack`.")],
    unserved: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTITION", help="To measure on: no worker reads it. Repeat; by default test."),
    ] = None,
    openly: Annotated[bool, typer.Option("--open", help="Leave no partition unserved, to train on all.")] = False,
    market: MarketOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload partitions and manifest as blobs, those that are not there yet; prints the manifest's digest."""
    place = folder / MANIFEST
    try:
        body = place.read_bytes()
        manifest = Manifest.model_validate_json(body)
    except FileNotFoundError as error:
        raise NotFound(f"there is no {place}: `gradmarket data pack` writes it") from error
    except ValidationError as error:
        why = ": ".join(first_fault(error, "manifest"))
        raise Refused(f"{place} is not a manifest: {why}", "write it again with `gradmarket data pack`") from error
    names = {partition.name for partition in manifest.partitions}
    if openly and unserved:
        raise Refused("--open leaves no partition unserved: leave out --unserved, or --open")
    if unknown := set(unserved or []) - names:
        raise Refused(f"{folder} has no partition {', '.join(sorted(unknown))}: it has {', '.join(sorted(names))}")
    kept = () if openly else unserved or (HELD_OUT,)
    paths = {part.name: path for part in manifest.partitions if (path := folder / part.file).is_file()}
    length = sum(path.stat().st_size for path in paths.values())
    try:
        with find_endpoint(market, token, data).market() as client, display_upload(length, hidden=as_json) as line:
            for partition in manifest.partitions:
                if partition.name not in paths:
                    continue
                path = paths[partition.name]
                rows = path.read_bytes()
                if blob_digest(rows) != partition.digest:
                    raise Refused(f"{path} differs from the manifest: pack again")
                send = client.upload_unserved if partition.name in kept else client.upload
                send(rows, line.begin_file(partition.file, len(rows)))
            digest = client.upload(body)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(INTERRUPTED) from None
    print_json({"manifest": digest}) if as_json else echo_text(digest)
