"""Whether a store supports create-only puts.

Every commit, of Lance and of omnigraph, ends in a put that must fail if the object exists: `If-None-Match: *` on S3, a
hard link on a local disk. A store that ignores the condition returns success to both writers, and one of two
acknowledged writes is lost silently. So the store is probed with a uniquely named object:

1. create the probe
2. create it again: this must be refused
3. delete it

A second success counts only if it happens again with another probe: a cleanup may have removed the probe of a process
that was stopped for a minute between 1 and 2. On S3 this takes three requests, once per process and graph, at `init` or
before the first write; readers never probe. On a local disk `init` and `clone` probe, and a writer that failed to
create an object: the graph may have been copied to another file system. A crash leaves a probe in `__cleanup`, which
the next cleanup removes.
"""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from contextlib import suppress

from omnigraph.errors import StorageError, UnsupportedStore
from omnigraph.storage.layout import CLEANUP, Location
from omnigraph.storage.objects.json_objects import PROBE
from omnigraph.storage.objects.store import ObjectStore

_PROBES = 2
_NO_LINKS = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK))
_conditional: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
"""Address and options of the graphs whose store this process has probed."""


def require_conditional(location: Location) -> None:
    """Raise UnsupportedStore if the object store ignores create-only puts. Probes once per process, never on a disk."""
    key = (location.uri, tuple(sorted(location.options.items())))
    if location.is_local or key in _conditional:
        return
    if not any(_refuses_second_put(location) for _ in range(_PROBES)):
        raise _unsupported(location, "a put with If-None-Match: * replaced an object that existed")
    _conditional.add(key)


def _refuses_second_put(location: Location) -> bool:
    from obstore.exceptions import NotSupportedError

    store = ObjectStore(location, CLEANUP)
    name = f"{PROBE}{secrets.token_hex(6)}"
    try:
        # The first put is refused only if its response was lost and the client repeated it.
        for _ in range(2):
            store.create(name, b"{}")
    except FileExistsError:
        return True
    except (NotImplementedError, StorageError) as error:
        if isinstance(error, NotImplementedError) or isinstance(error.__cause__, NotSupportedError):
            raise _unsupported(location, "it refuses puts with If-None-Match: *") from error
        raise
    finally:
        with suppress(StorageError):  # the next cleanup removes it
            store.delete([name])
    return False


def _unsupported(location: Location, observation: str) -> UnsupportedStore:
    detail = f"{observation}, so that one of two writers who commit at once would be lost."
    return UnsupportedStore(uri=location.uri, detail=detail, missing="create_only_put")


def require_hard_links(location: Location) -> None:
    """Raise UnsupportedStore if the file system of a local graph has no hard links."""
    folder = location.join(CLEANUP)
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=PROBE) as file:
            _link(location, file.name)
    except OSError as error:
        raise StorageError(doing=f"creating {folder}", detail=str(error)) from error
    finally:
        with suppress(OSError):  # another process creates a graph at the same address
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
