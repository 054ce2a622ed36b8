"""Task groups wrap what they raise; callers should see the one error that matters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def leaves(group: BaseException) -> Iterator[BaseException]:
    """The exceptions inside `group`, however deep its groups nest; `group` itself where it is none."""
    if isinstance(group, BaseExceptionGroup):
        for inner in group.exceptions:
            yield from leaves(inner)
    else:
        yield group


@contextmanager
def bare(*, deep: bool = False) -> Iterator[None]:
    """Around a nursery: the one exception that it wrapped comes out as it is.

    Several stay a group, and so does a group that the body itself raised, but with `deep`, which is for
    nurseries of libraries inside: there a single exception comes out however deep it lies. A Ctrl-C comes out
    before all others and from any depth: it may strike in any task, and callers wait for no group.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        for leaf in leaves(group):
            if isinstance(leaf, KeyboardInterrupt):
                raise leaf from group
        found = list(leaves(group)) if deep else group.exceptions
        if len(found) != 1:
            raise
        raise found[0] from found[0].__cause__
