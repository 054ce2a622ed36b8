"""What may be changed about classification: per server, per tool and per call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from playhead.results.plan import Decision

Stopper = Literal[
    "audio", "link", "blob", "structured", "text", "image", "reference", "embedded_text", "unknown"
]
"""What a block can be to the turn. `link` and `blob` are playable, `reference` is any other link or blob;
`structured` is a structured response that says itself that it is terminal."""

DEFAULT_STOPPERS: Final[frozenset[Stopper]] = frozenset({"audio", "link", "blob", "structured"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How results are to be classified."""

    trust_structured: bool = True
    """Whether a text that looks like a structured response is taken for one. An imitation can't be told from
    the real thing, and can at worst end the turn or play sound: switch it off for tools that relay foreign
    text (web pages, mails)."""
    stops: frozenset[Stopper] = DEFAULT_STOPPERS
    """Which kinds of block end the turn: by default those that make a sound; speech over music is no use."""
    turn: Decision | None = None
    """Decides the turn whatever the blocks are; an error result goes to the model all the same."""
    sniff_links: bool = True
    """Whether the first bytes of a link without a telling type or suffix are read to see if it is sound."""


DEFAULT_POLICY: Final = Policy()
