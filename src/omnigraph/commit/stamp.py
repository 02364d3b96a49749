"""The stamp on every Lance version that the committer makes: its operation, and which planned effect it is.

    <incarnation>/<epoch>/<attempt>/<table>/<step>/<nonce>

The nonce is that of the advisory lock: if a power failure loses the lock, another writer may use the same epoch. A
Restore has `r<claimant>` in place of the step.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stamp:
    incarnation: str
    epoch: int
    attempt: int
    table: str
    step: str
    nonce: str

    def __str__(self) -> str:
        return f"{self.incarnation}/{self.epoch}/{self.attempt}/{self.table}/{self.step}/{self.nonce}"

    @property
    def is_restore(self) -> bool:
        return self.step.startswith("r")

    @staticmethod
    def parse(text: str | None) -> Stamp | None:
        """The stamp, or None if the text is not a stamp of omnigraph."""
        parts = (text or "").split("/")
        if len(parts) != 6 or not parts[1].isdigit() or not parts[2].isdigit():
            return None
        return Stamp(parts[0], int(parts[1]), int(parts[2]), parts[3], parts[4], parts[5])
