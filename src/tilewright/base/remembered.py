"""Values that are found as far as somebody asks for them, and kept for others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from tilewright.base.errors import CompileError, TargetError

T = TypeVar("T")


class Remembered(Generic[T]):
    """What an iterator yields that `make` returns, for several to go through; each value is
    computed once, when it is first asked for. A refusal at the end is raised for each of them,
    after the same values. After anything else that is raised (Ctrl-C), and in a process that was
    forked, perhaps while another thread computed a value, it begins anew."""

    def __init__(self, make: Callable[[], Iterator[T]]) -> None:
        self._make = make
        self._begin()

    def _begin(self) -> None:
        self._left: Iterator[T] | None = self._make()
        self._found: list[T] = []
        self._refusal: CompileError | TargetError | None = None
        self._lock = threading.Lock()  # two threads may not run a generator at once
        self._process = os.getpid()

    def __iter__(self) -> Iterator[T]:
        k = 0
        while found := self._at(k):
            yield found[0]
            k += 1

    def _at(self, k: int) -> tuple[T, ...]:
        """The value of this number, if there is one."""
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            while self._left is not None and len(self._found) <= k:
                self._find(self._left)
            if k >= len(self._found) and self._refusal is not None:
                raise self._refusal.again()
            return tuple(self._found[k : k + 1])

    def _find(self, left: Iterator[T]) -> None:
        try:
            self._found.append(next(left))
        except StopIteration:
            self._left = None
        except (CompileError, TargetError) as error:
            self._left, self._refusal = None, error.again()
        except BaseException:
            self._left, self._found = self._make(), []
            raise


class Memo:
    """Answers by their questions: each is found once, be it a value or a refusal. Other processes
    may find `answers` ahead, as they can be pickled if values can."""

    def __init__(self) -> None:
        self.answers: dict[Hashable, tuple[Any] | CompileError | TargetError] = {}

    def of(self, question: Hashable, find: Callable[[], T]) -> T:
        """What `find` returns, or raises as a refusal, if the question was not asked before."""
        if question not in self.answers:
            try:
                self.answers[question] = (find(),)
            except (CompileError, TargetError) as error:
                self.answers[question] = error.again()
        answer = self.answers[question]
        if not isinstance(answer, tuple):
            raise answer.again()
        found: T = answer[0]
        return found
