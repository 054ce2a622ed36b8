"""What a tool result may hold in each revision of the protocol.

Sources: the published schema of each revision, and the changelogs between them. A table, no decisions: the
validator and the downgrade read the same rows, so that what one finds is what the other rewrites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from playhead.errors import UsageError

REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Oldest first: their order is the order of their dates."""
LATEST: Final = REVISIONS[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What one revision has."""

    revision: str
    audio: bool
    """Blocks of type `audio` (2025-03-26)."""
    links: bool
    """Blocks of type `resource_link` (2025-06-18)."""
    structured: bool
    """`structuredContent`, as an object (2025-06-18)."""
    structured_any: bool
    """`structuredContent` of any type (2026-07-28)."""
    block_meta: bool
    """`_meta` on blocks and embedded contents (2025-06-18); a result may always carry one."""
    last_modified: bool
    """`annotations.lastModified` (2025-06-18)."""
    icons: bool
    """`icons` on links (2025-11-25)."""
    result_type: bool
    """`resultType` is required (2026-07-28)."""

    @property
    def block_types(self) -> tuple[str, ...]:
        """The types a block may have."""
        return (
            "text",
            "image",
            *(("audio",) if self.audio else ()),
            *(("resource_link",) if self.links else ()),
            "resource",
        )


def features_of(revision: str) -> Features:
    """What `revision` has. Raises `UsageError` for one that is none of `REVISIONS`."""
    if revision not in REVISIONS:
        raise UsageError(
            f"expected a protocol revision, one of {', '.join(REVISIONS)}; came {revision!r:.40}"
        )
    return Features(
        revision=revision,
        audio=revision >= "2025-03-26",
        links=revision >= "2025-06-18",
        structured=revision >= "2025-06-18",
        structured_any=revision >= "2026-07-28",
        block_meta=revision >= "2025-06-18",
        last_modified=revision >= "2025-06-18",
        icons=revision >= "2025-11-25",
        result_type=revision >= "2026-07-28",
    )
