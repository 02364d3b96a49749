"""A folder of control objects that others remove, empty, while it is opened, is made again."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from omnigraph.storage.layout import locate
from omnigraph.storage.objects import open_store


def test_a_folder_that_is_removed_again_and_again_is_opened_all_the_same(tmp_path: Path) -> None:
    over = threading.Event()

    def remove() -> None:
        while not over.is_set():
            try:
                os.rmdir(tmp_path / "__cleanup")
            except OSError:
                continue

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for _ in range(300):
            open_store(locate(str(tmp_path)), "__cleanup")
    finally:
        over.set()
        remover.join()
