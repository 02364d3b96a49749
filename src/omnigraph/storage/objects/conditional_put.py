"""Whether a store can decide who of two writers was first.

Every commit, of Lance and of ours, ends in a put that must fail if the object exists: `If-None-Match: *` on S3, a hard
link on a local disk. A store that ignores the condition answers both writers with success, and one of two acknowledged
writes is lost without a trace. So it is asked, with an object that nobody else can name:

1. create the probe
2. create it again: this must be refused
3. delete it

A second success is believed only when it happens again with another probe: a process that was stopped for a minute
between 1 and 2 may have lost its probe to a cleanup. On S3 this takes three requests, once per process and graph, at
`init` or before the first write; readers never ask. On a local disk `init` and `clone` ask, and who failed to create an
object: the graph may have been copied to another file system. A crash leaves a probe in `__cleanup`, which the next
cleanup removes.
"""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from contextlib import suppress

from omnigraph.errors import StorageError, UnsupportedStore
from omnigraph.storage.layout import CLEANUP, Location
from omnigraph.storage.objects.control_objects import open_store
from omnigraph.storage.objects.json_objects import PROBE

_PROBES = 2
_NO_LINKS = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK))
_conditional: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
"""Address and options of the graphs whose store has been asked by this process."""


def require_conditional(location: Location) -> None:
    """UnsupportedStore if the object store ignores create-only puts. Asks once per process; never on a local disk."""
    key = (location.uri, tuple(sorted(location.options.items())))
    if location.is_local or key in _conditional:
        return
    if not any(_refuses_second_put(location) for _ in range(_PROBES)):
        raise _unsupported(location, "a put with If-None-Match: * replaced an object that existed")
    _conditional.add(key)


def _refuses_second_put(location: Location) -> bool:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError

    store = open_store(location, CLEANUP)
    name = f"{PROBE}{secrets.token_hex(6)}"
    try:
        # The first is refused only where the answer to it was lost and the client has sent it again.
        for _ in range(2):
            obstore.put(store, name, b"{}", mode="create")
    except AlreadyExistsError:
        return True
    except (NotImplementedError, NotSupportedError) as error:
        raise _unsupported(location, "it refuses puts with If-None-Match: *") from error
    except (BaseError, OSError) as error:
        raise StorageError(doing=f"creating {CLEANUP}/{name}", detail=str(error)) from error
    finally:
        with suppress(BaseError, OSError):  # the next cleanup removes it
            obstore.delete(store, name)
    return False


def _unsupported(location: Location, seen: str) -> UnsupportedStore:
    detail = f"{seen}, so that one of two writers who commit at once would be lost."
    return UnsupportedStore(uri=location.uri, detail=detail, missing="create_only_put")


def require_hard_links(location: Location) -> None:
    """UnsupportedStore if the file system of a local graph has no hard links."""
    folder = location.join(CLEANUP)
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=PROBE) as file:
            _link(location, file.name)
    except OSError as error:
        raise StorageError(doing=f"creating {folder}", detail=str(error)) from error
    finally:
        with suppress(OSError):  # another one creates a graph at the same address
            os.rmdir(folder)


def _link(location: Location, file: str) -> None:
    try:
        os.link(file, f"{file}.link")
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        detail = f"its file system has no hard links ({error.strerror}), by which a commit is decided."
        raise UnsupportedStore(uri=location.uri, detail=detail, missing="hard_links") from error
    os.unlink(f"{file}.link")
