"""Task groups wrap what they raise; callers should see the one error that matters."""

from __future__ import annotations

from collections.abc import Iterator


def leaves(group: BaseException) -> Iterator[BaseException]:
    """The exceptions inside `group`, however deep its groups nest; `group` itself where it is none."""
    if isinstance(group, BaseExceptionGroup):
        for inner in group.exceptions:
            yield from leaves(inner)
    else:
        yield group


def only(group: BaseException) -> BaseException:
    """The single exception inside `group`, or `group` unchanged where there are several."""
    found = list(leaves(group))
    return found[0] if len(found) == 1 else group


def peeled(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What one nursery of ours wrapped: a group that the body itself raised stays a group."""
    return group.exceptions[0] if len(group.exceptions) == 1 else group
