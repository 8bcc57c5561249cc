"""How long loops say how far they are, without knowing who listens. Nobody does, unless a listener is put up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[int, int], None]
"""Told (steps done, steps in all) after every step."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def reported_to(listener: Listener) -> Iterator[None]:
    """Loops inside the `with` block report to the listener.

    Example:
        >>> with reported_to(lambda done, total: print(f"{done}/{total}")):
        ...     spans = list(spans_of(5, 2))
        2/5
        4/5
        5/5
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def spans_of(total: int, length: int) -> Iterator[slice]:
    """Slices of at most `length` that cover 0..total, each reported when its work is done.

    Example:
        >>> list(spans_of(5, 2))
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(0, total, length):
        stop = min(start + length, total)
        yield slice(start, stop)
        report(stop, total)


def report(done: int, total: int) -> None:
    """Tell the listener, if there is one; for loops whose steps are not spans.

    Example:
        >>> with reported_to(lambda done, total: print(f"{done}/{total}")):
        ...     report(3, 4)
        3/4
    """
    listener = _listener.get()
    if listener is not None:
        listener(done, total)
