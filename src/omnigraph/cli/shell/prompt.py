"""The prompt of the shell on a terminal: editing over several lines, history, completion.

Enter runs what is whole and begins a new line where something is open. Ctrl-C drops what was typed, Ctrl-D leaves. The
history is one file per user, readable by nobody else; where it can't be kept, it lasts as long as the session.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.defaults import create_output

from omnigraph.cli.output import write_text
from omnigraph.cli.shell.complete import complete
from omnigraph.cli.shell.session import Quit, Session
from omnigraph.cli.shell.text import is_whole, split
from omnigraph.errors import OmnigraphError

if TYPE_CHECKING:
    from prompt_toolkit.output import Output


def interact(session: Session) -> None:
    """Until the user leaves."""
    prompt: PromptSession[str] = PromptSession(
        history=history_of(history_path()),
        completer=_Completer(session),
        complete_while_typing=False,
        multiline=True,
        prompt_continuation=lambda width, _line, _wrapped: "… ".rjust(width),
        key_bindings=_keys(),
        output=_terminal(),
    )
    while True:
        try:
            text = prompt.prompt(f"{session.label}> ")
            for statement in split(f"{text}\n".splitlines(keepends=True)):
                if session.run(statement):
                    break  # what was pasted behind it may rest on it
        except KeyboardInterrupt:
            continue
        except (EOFError, Quit):
            return


def _terminal() -> Output | None:
    """Where the prompt is drawn if stdout goes to a file: on stderr, so that the file holds answers only."""
    return None if sys.stdout.isatty() else create_output(always_prefer_tty=True)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline()

    return keys


class _Completer(Completer):
    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        try:
            known = self._session.known()
        except OmnigraphError:
            return  # the next statement meets the same and says it
        found = complete(document.text_before_cursor, known)
        for offer in found.offers:
            yield Completion(offer.text, start_position=-len(found.typed), display_meta=offer.kind)


# ---- history ---------------------------------------------------------------------------------------------------------


def history_path() -> str:
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.local/state")
    return os.path.join(base, "omnigraph", "history")


def history_of(path: str) -> History:
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError as error:
        _not_kept(path, error)
        return InMemoryHistory()
    return _Kept(path)


class _Kept(FileHistory):
    """A disk that is full is no reason to lose what was just typed."""

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError as error:
            _not_kept(str(self.filename), error)


def _not_kept(path: str, error: OSError) -> None:
    write_text(sys.stderr, f"warning: the history is not kept in {path}: {(error.strerror or str(error)).lower()}.\n")
