"""Failures for people and programs: any exception becomes condition, message, remedy, fields and an exit code."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from omnigraph.errors import OmnigraphError, StorageError, UsageError
from omnigraph.errors.redact import redact, redacted

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Failure:
    """`fields` are the error's own, beside the three that every error has."""

    condition: str
    message: str
    remedy: str
    exit_code: int = EXIT_FAILED
    fields: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"condition": self.condition, "message": self.message, "remedy": self.remedy, **self.fields}


def describe(error: BaseException) -> Failure:
    from typer import Abort, TyperException

    if isinstance(error, OmnigraphError):
        own = {k: v for k, v in error.to_json().items() if k not in ("condition", "message", "remedy")}
        return Failure(error.condition, error.message, error.remedy, error.exit_code, own)
    if isinstance(error, TyperException):
        return _wrong_usage(error)
    if isinstance(error, Abort):
        return Failure("declined", "stopped, as you said.", "Nothing was done.")
    if isinstance(error, KeyboardInterrupt):
        return Failure(
            "interrupted",
            "stopped by Ctrl-C.",
            "A write that was under way has happened as a whole or not at all; `omnigraph commit list` shows which.",
            EXIT_INTERRUPTED,
        )
    if isinstance(error, OSError):
        # The world's doing and not a bug: a full disk behind the stdout of export, for example.
        reason = error.strerror or str(error)
        detail = f"{error.filename}: {reason}" if error.filename is not None else reason
        known = StorageError(doing="reading or writing", detail=detail)
        return Failure(known.condition, known.message, known.remedy)
    return Failure(
        "internal_error",
        f"internal error: {type(error).__name__}: {str(error).strip() or 'no details'}",
        "This is a bug in omnigraph. Run the command again with OMNIGRAPH_DEBUG=1 for the traceback, and report it.",
    )


def unsaid(error: OSError) -> Failure:
    """The work is done and stdout does not take the answer: the user must not think that nothing has happened."""
    message = f"the command is done, but its answer can't be written: {error.strerror or error}."
    return Failure("output_failed", message, "If it was a write, it did happen; `omnigraph commit list` shows it.")


def report(failure: Failure, *, as_json: bool) -> None:
    """JSON on stdout, or message and remedy on stderr."""
    from omnigraph.cli.output import write_json, write_text

    if as_json:
        write_json({"error": redacted(failure.to_json())})
        return
    remedy = f"→ {failure.remedy}\n" if failure.remedy else ""
    write_text(sys.stderr, redact(f"error: {failure.message.rstrip()}\n{remedy}"))


def report_traceback(error: BaseException) -> None:
    """For OMNIGRAPH_DEBUG."""
    import traceback

    from omnigraph.cli.output import write_text

    write_text(sys.stderr, redact("".join(traceback.format_exception(error))))


def _wrong_usage(error: Any) -> Failure:
    """What the parser says, in our words where a flag belongs to another plane."""
    from omnigraph.cli.planes import foreign_flag

    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "omnigraph"
    flag = getattr(error, "option_name", None)
    if flag is not None and hasattr(getattr(context, "command", None), "commands"):
        remedy = f"Put it behind the command: `{path} COMMAND {flag} …`."
        return Failure(UsageError.condition, f"{flag} is no option of {path} itself.", remedy, EXIT_USAGE)
    if flag is not None:
        known = foreign_flag(path.removeprefix("omnigraph").strip(), flag)
        if known is not None:
            return Failure(known.condition, known.message, known.remedy, EXIT_USAGE, {"flag": flag})
    message = " ".join(error.format_message().split())
    remedy = f"Run `{path} --help` for its options and examples."
    return Failure(UsageError.condition, message, remedy, EXIT_USAGE)
