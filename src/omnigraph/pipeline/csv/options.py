"""The options of CSV, checked.

| option    | value                                  | default                                                         |
|-----------|----------------------------------------|-----------------------------------------------------------------|
| delimiter | one ASCII character                    | a comma; a tab for files whose name ends in `.tsv`              |
| quote     | one ASCII character, or nothing: none  | `"`                                                             |
| escape    | one ASCII character                    | none                                                            |
| comment   | one ASCII character                    | none                                                            |
| null      | a text that means null                 | none; nothing between two delimiters is null in any case        |
| header    | true or false                          | true                                                            |
| multiline | true or false                          | true: a quoted value may hold line breaks                       |
| encoding  | a codec that keeps the line feed       | utf-8                                                           |

Every reader takes a `CsvFormat`, never the options themselves, so that an option means the same to all of them.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from omnigraph.errors import UsageError
from omnigraph.pipeline.load.input_files import COMPRESSED

CSV_OPTIONS = ("delimiter", "quote", "escape", "header", "null", "encoding", "multiline", "comment")
_TAB = {"\\t": "\t", "tab": "\t"}


@dataclass(frozen=True)
class CsvFormat:
    """The format of a CSV file. None for a character that the file does not use."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    comment: str | None = None
    null: str | None = None
    header: bool = True
    multiline: bool = True
    encoding: str = "utf-8"

    @property
    def is_ascii_transparent(self) -> bool:
        """Whether a byte below 128 is always that character: only then can records be found before decoding."""
        return self.encoding == "utf-8" or _is_one_byte(self.encoding)


def csv_format(options: Mapping[str, str], *, path: str) -> CsvFormat:
    """The format of these options. `path` is that of the file: its ending is used for the delimiter if no option is.

    UsageError for an option that does not exist, an invalid value, and two options that contradict each other.
    """
    for key, value in options.items():
        if key not in CSV_OPTIONS:
            raise UsageError(detail=f"CSV has no option {key!r}; it has {', '.join(CSV_OPTIONS)}.")
        if not isinstance(value, str):
            raise UsageError(detail=f"the CSV option {key} is a text, not {type(value).__name__}.")
    delimiter = options.get("delimiter", "\t" if _is_tsv(path) else ",")
    format = CsvFormat(
        delimiter=_character("delimiter", _TAB.get(delimiter, delimiter)) or "",
        quote=_character("quote", options.get("quote", '"')),
        escape=_character("escape", options.get("escape", "")),
        comment=_character("comment", options.get("comment", "")),
        null=options.get("null"),
        header=_switch("header", options),
        multiline=_switch("multiline", options),
        encoding=_encoding(options.get("encoding", "utf-8")),
    )
    _check_pairs(format)
    return format


def _is_tsv(path: str) -> bool:
    stem, ending = os.path.splitext(path.lower())
    return (os.path.splitext(stem)[1] if ending in COMPRESSED else ending) == ".tsv"


def _character(option: str, value: str) -> str | None:
    if not value and option != "delimiter":
        return None
    if len(value) != 1 or not value.isascii() or value in "\r\n\0":
        raise UsageError(detail=f"the CSV option {option} is one ASCII character, not {value!r}.")
    return value


def _switch(option: str, options: Mapping[str, str]) -> bool:
    value = options.get(option, "true").lower()
    if value not in ("true", "false"):
        raise UsageError(detail=f"the CSV option {option} is true or false, not {options[option]!r}.")
    return value == "true"


def _encoding(value: str) -> str:
    """The codec's name; UsageError for one that does not write a line feed as one byte."""
    try:
        name = codecs.lookup(value).name.replace("utf-8-sig", "utf-8")
        line_feed = "\n".encode(name)
        codecs.getincrementaldecoder(name)
    except LookupError:
        raise UsageError(detail=f"there is no encoding {value!r} of text.") from None
    if line_feed != b"\n":
        raise UsageError(detail=f"CSV is not read in the encoding {value!r}: convert the file to UTF-8 first.")
    return name


@lru_cache(maxsize=64)
def _is_one_byte(encoding: str) -> bool:
    ascii_bytes = bytes(range(128))
    if ascii_bytes.decode(encoding, "replace") != ascii_bytes.decode("ascii"):
        return False
    return all(len(bytes([high, 0x5C]).decode(encoding, "replace")) == 2 for high in range(128, 256))


def _check_pairs(format: CsvFormat) -> None:
    """UsageError for two options that contradict each other."""
    special = {"delimiter": format.delimiter, "quote": format.quote, "escape": format.escape, "comment": format.comment}
    used = [(option, character) for option, character in special.items() if character is not None]
    for (first, a), (second, b) in combinations(used, 2):
        if a != b:
            continue
        hint = (
            " Two quotes within quotes mean one without any option." if (first, second) == ("quote", "escape") else ""
        )
        raise UsageError(detail=f"the CSV options {first} and {second} can't both be {a!r}.{hint}")
    null = format.null
    if not null:
        return
    if format.delimiter in null:
        raise UsageError(detail=f"the CSV option null={null!r} holds the delimiter {format.delimiter!r}: no value can.")
    if "\n" in null or "\r" in null:
        raise UsageError(detail=f"the CSV option null={null!r} holds a line break: no value without quotes can.")
    if format.quote is not None and null.startswith(format.quote):
        raise UsageError(
            detail=f"the CSV option null={null!r} begins with the quote {format.quote!r}: a quoted value is never null."
        )
    if format.escape is not None and (len(null) - len(null.rstrip(format.escape))) % 2:
        raise UsageError(
            detail=f"the CSV option null={null!r} ends with the escape {format.escape!r}: it escapes what follows."
        )
