"""A cleanup in a process of its own that dies at its Nth change of the store: `python -m … GRAPH N`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any


def main(graph: str, at: int) -> None:
    import obstore

    import omnigraph as og

    left = [at]

    def counted(call: Any) -> Any:
        def struck(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return struck

    opened = og.open(graph)
    os.unlink = counted(os.unlink)
    obstore.put = counted(obstore.put)
    opened.cleanup(keep=1, confirm=True)
    print(at - left[0], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
