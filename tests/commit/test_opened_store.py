"""A folder of control objects that others remove, empty, while it is opened, is made again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import obstore.store
import pytest
from obstore.exceptions import GenericError

from omnigraph.storage.layout import locate
from omnigraph.storage.objects.client import open_store


def test_a_folder_that_is_removed_while_it_is_opened_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = obstore.store.LocalStore, []

    def removed_at_first(path: str, **options: Any) -> Any:
        tries.append(path)
        store = real(path, **options)
        if len(tries) < 3:
            os.rmdir(path)
            raise GenericError("Unable to canonicalize filesystem root")
        return store

    monkeypatch.setattr(obstore.store, "LocalStore", removed_at_first)
    open_store(locate(str(tmp_path)), "__cleanup")
    assert len(tries) == 3
    assert (tmp_path / "__cleanup").is_dir()
