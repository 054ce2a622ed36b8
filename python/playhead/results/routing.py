"""The text that a model gets for a result. (under construction: the signatures are final)"""

from __future__ import annotations

from dataclasses import dataclass

from playhead.results.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelText:
    """What the model gets."""

    text: str
    """At most the limit's characters."""
    whole: str
    """All of it; the same object as `text` where nothing was cut."""
    cut: bool


def text_for_model(
    plan: Plan, *, limit_chars: int, handle: str | None = None, playing: bool = True
) -> ModelText:
    """`plan` as text: never base64, never a `data:` URI, media as one short line.

    Args:
        plan: What `classify` gave.
        limit_chars: The most characters of `text` (`Limits.model_text_chars`).
        handle: Where the whole is, in words for the model ("saved as notes.txt"); said where text is cut.
        playing: Whether what can be played is being played; the lines say it.

    Raises:
        UsageError: `limit_chars` has no room for the mark of a cut (yours).
    """
    raise NotImplementedError
