"""A folder of plain files outside of a graph, on a local disk or in a bucket.

A file appears under its name when it is whole, and replaces what was there: on a disk it is written beside and moved
into place, in a bucket an upload shows when it is complete. Names are relative, with `/` between their parts.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from omnigraph.errors import FileUnwritable, StorageError
from omnigraph.storage import durability
from omnigraph.storage.layout import Location
from omnigraph.storage.objects.store import ObjectStore


class Folder:
    def __init__(self, location: Location) -> None:
        self.location = location
        self._bucket = ObjectStore(location)

    @property
    def uri(self) -> str:
        return self.location.uri

    def files(self, subfolder: str = "") -> dict[str, int]:
        """Every file in the folder, or in one folder of it, however deep, with its size in bytes."""
        with self._store_errors(subfolder):
            if self.location.is_local:
                return dict(self._walk(subfolder))
            listed = self._bucket.iter_files(subfolder, doing=self._doing(subfolder))
            return {file.path: file.size for file in listed}

    def _walk(self, subfolder: str) -> Iterator[tuple[str, int]]:
        top = self._path(subfolder) if subfolder else self.uri
        if os.path.lexists(top) and not os.path.isdir(top):
            raise NotADirectoryError(20, "a file is there", top)
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                yield os.path.relpath(path, self.uri).replace(os.sep, "/"), os.lstat(path).st_size

    def create(self, name: str, body: bytes) -> bool:
        """Write a new file; False if there is one of this name already."""
        with self._store_errors(name):
            if self.location.is_local:
                os.makedirs(os.path.dirname(self._path(name)), exist_ok=True)
                try:
                    with open(self._path(name), "xb") as file:
                        file.write(body)
                except FileExistsError:
                    return False
                return True
            try:
                self._bucket.create(name, body, doing=self._doing(name))
            except FileExistsError:
                return False
            return True

    def write(self, name: str, body: bytes) -> None:
        with self.placed(name) as path:
            Path(path).write_bytes(body)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        with self._store_errors(name):
            try:
                if self.location.is_local:
                    return Path(self._path(name)).read_bytes()
                return self._bucket.get(name, doing=self._doing(name))
            except FileNotFoundError:
                return None

    @contextmanager
    def placed(self, name: str, *, scratch: str | None = None) -> Iterator[str]:
        """A path of a local file to write; it becomes the file `name` when the block ends well, and is removed if not.

        `scratch` is a folder in this folder that exists, for files in the making; by default they lie beside.
        """
        with self._store_errors(name):
            if self.location.is_local:
                partial = self._path(scratch or os.path.dirname(name), f".{uuid.uuid4().hex}.part")
            else:
                handle, partial = tempfile.mkstemp(prefix="omnigraph-")
                os.close(handle)
            try:
                yield partial
                if self.location.is_local:
                    durability.sync_files([partial])
                    os.replace(partial, self._path(name))
                else:
                    self._bucket.put_file(name, partial, doing=self._doing(name))
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(partial)

    def make(self, *names: str) -> None:
        """Make folders in this folder; a bucket has none."""
        if self.location.is_local:
            for name in names:
                with self._store_errors(name):
                    os.makedirs(self._path(name), exist_ok=True)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; missing ones are ignored."""
        for name in names:
            with self._store_errors(name), suppress(FileNotFoundError):
                if self.location.is_local:
                    os.unlink(self._path(name))
                else:
                    self._bucket.delete([name], doing=self._doing(name))

    def drop(self, name: str) -> None:
        """Remove one folder of this folder with everything in it."""
        if self.location.is_local:
            shutil.rmtree(self._path(name), ignore_errors=True)
        else:
            self.delete(self.files(name))

    def drop_empty(self) -> None:
        """Remove the empty folders in this folder."""
        if self.location.is_local:
            for folder, _, _ in os.walk(self.uri, topdown=False):
                if folder != self.uri:
                    with suppress(OSError):
                        os.rmdir(folder)

    def _path(self, *parts: str) -> str:
        return os.path.join(self.uri, *(part for part in parts if part))

    @contextmanager
    def _store_errors(self, name: str) -> Iterator[None]:
        """Translate errors: those of a disk name the file, those of a bucket the whole address."""
        try:
            yield
        except OSError as error:
            if not self.location.is_local:
                raise StorageError(doing=self._doing(name), detail=str(error)) from error
            detail = f"{(error.strerror or str(error)).rstrip('.').lower()}."
            raise FileUnwritable(path=self._where(name), detail=detail) from error

    def _where(self, name: str) -> str:
        return f"{self.uri}/{name}" if name else self.uri

    def _doing(self, name: str) -> str:
        return f"reading or writing {self._where(name)}"
