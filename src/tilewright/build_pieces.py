"""Pieces of a stream as a chip does them: each takes what those before it made, where it lies. What
is found of them can be found ahead, many pieces at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tilewright.base.errors import CompileError, ScheduleError, TargetError, TilewrightError
from tilewright.base.passes import Watch
from tilewright.base.remembered import Memo
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.loop import Kernel
from tilewright.passed_arrays import MadeOtherwise, PassedArrays
from tilewright.plan.places import Places
from tilewright.plan.same_kernels import with_plain_names
from tilewright.plan.split_kernel import Split
from tilewright.resident_arrays import Resident, Residents, Variant, build_spill
from tilewright.target.target import Target

SAME = 1.005  # of the cycles: no slower


@dataclass(frozen=True)
class BuiltPiece:
    """A piece as a chip does it, and what its parameters are called in the whole kernel; or what
    spills an array behind it. `number` is the piece's."""

    chip: ChipKernel
    names: Mapping[str, str]
    number: int
    spills: bool = False


Check = Callable[[ChipKernel], None]  # raises ScheduleError
REFUSALS = (ScheduleError, TargetError, CompileError)
Answers = dict[Any, dict[Hashable, Any]]  # of memos, by what is known


@dataclass(frozen=True)
class PieceBuilder:
    """What is asked about a piece. `build` is given the chip with the memory that there is, the
    names of the parameters that are to be as they are, what checks that the piece finds what those
    before it made, where that is, what has to lie row by row, and what was found of the piece
    before; `may_beat` says whether it may be done in fewer cycles than so many; `independent`
    whether what is found of it is the same wherever those before it leave what they make.
    `in_processes` has such things found side by side (runtime/processes.py). `watch` is told how
    far it is."""

    build: Callable[
        [Kernel, Target, Collection[str], Check, Places, Collection[str], Memo], ChipKernel
    ]
    may_beat: Callable[[Kernel, frozenset[str], Memo, float], bool]
    independent: Callable[[Kernel, Target, Collection[str]], bool]
    in_processes: Callable[
        [Callable[[str], Answers], Sequence[str], int], Generator[tuple[str, Answers], None, None]
    ]
    watch: Watch


@dataclass(frozen=True)
class Tried:
    """What was built of a kernel, and what was found of its forms."""

    chips: list[ChipKernel] = field(default_factory=list)
    memo: Memo = field(default_factory=Memo)


Known = dict[Any, Tried]  # of kernels with plain names


class PieceRefused(ScheduleError):
    """Why a piece, by its `number`, cannot be one of the stream: the `error`."""

    def __init__(self, error: TilewrightError, number: int) -> None:
        super().__init__(error.what, program=error.program, hint=error.hint)
        self.error, self.number = error, number


def build_pieces(
    split: Split, target: Target, builder: PieceBuilder, known: Known | None, residents: Residents
) -> list[BuiltPiece]:
    """Every piece as a chip does it. Of pieces that differ in names alone, one is built, or found
    among those `known`. PieceRefused for the first that cannot be built, in the author's names
    where nothing is known: then there is an author."""
    made: Known = {} if known is None else known
    passed = PassedArrays(split.borders, joins=split.joins)
    return _Pieces(split, target, builder, made, residents, passed, known is None).built()


@dataclass(frozen=True)
class _Asked:
    """A variant of a piece in `plain` names, with those of the parameters that are to be as they
    are, of those that lie row by row, and what all are called in the whole kernel."""

    plain: Kernel
    name: str
    target: Target
    kept: frozenset[str]
    rows: frozenset[str]
    names: Mapping[str, str] = field(compare=False)

    @property
    def key(self) -> tuple[object, ...]:
        """What equal pieces have in common."""
        sizes = tuple(m.size for m in self.target.memories)
        return self.plain, self.kept, self.rows, self.name, sizes


@dataclass
class _Pieces:
    split: Split
    target: Target
    builder: PieceBuilder
    known: Known
    residents: Residents
    passed: PassedArrays
    has_author: bool

    def built(self) -> list[BuiltPiece]:
        _Ahead(self).find()
        found: list[list[BuiltPiece]] = []  # each piece, with what is spilled behind it
        for number, piece in enumerate(self.split.pieces):
            self.builder.watch("kernels built", number, len(self.split.pieces))
            variant, built = self._fastest(number)
            for resident in self.residents.take(number, variant):
                found[resident.maker].append(self._spilled(resident))
            found.append([built])
            if piece.outputs[0].name in self.split.passed:
                try:
                    self._pass(built)
                except ScheduleError as error:
                    raise PieceRefused(error, number) from None
        self.builder.watch("kernels built", len(found), len(found))
        return [piece for several in found for piece in several]

    def _pass(self, built: BuiltPiece) -> None:
        """Hands on what a piece makes: if that stays inside, a copy of it outside lies alike."""
        (result,) = built.chip.kernel.outputs
        name = built.names[result.name]
        self.passed.add(built.chip, name)
        resident = self.residents.inside_alone.get(self.split.pieces[built.number].outputs[0].name)
        if resident is not None:
            outside = self.split.passed[resident.name].memory
            self.passed.copy(name, resident.name, outside)

    def _fastest(self, number: int) -> tuple[Variant, BuiltPiece]:
        """The variant of a piece that moves fewest bytes of arrays, of those that are as fast as
        the piece as it is, with all of the chip's memory."""
        refusal: TilewrightError | None = None
        for variant in self.residents.variants(number):
            try:
                built = self.built_as(number, variant)
            except REFUSALS as error:
                refusal = error
                continue
            if variant.plain or self._is_fast(number, built.chip):
                return variant, built
        assert refusal is not None  # the piece as it is comes last, and is fast
        raise PieceRefused(refusal, number) from None

    def _is_fast(self, number: int, chip: ChipKernel) -> bool:
        """Whether a piece as it is would be no faster: than its bound, or else than it is built."""
        as_it_is = self.residents.plain(number)
        try:
            if not self.may_beat(as_it_is, chip.cycles / SAME):
                return True
            return chip.cycles <= SAME * self.built_as(number, as_it_is).chip.cycles
        except REFUSALS:
            return True

    def may_beat(self, variant: Variant, cycles: float) -> bool:
        """Whether a variant may be done in fewer cycles than so many."""
        asked = self.asked(variant)
        return self.builder.may_beat(asked.plain, asked.kept, self.tried(asked).memo, cycles)

    def built_as(self, number: int, variant: Variant) -> BuiltPiece:
        """A piece, which finds what those before it made."""
        asked = self.asked(variant)
        check = partial(self.passed.check, names=asked.names)
        tried = self.tried(asked)
        chip = next((c for c in tried.chips if _passes(check, c)), None)
        if chip is None:
            places = self.passed.places_of(asked.names)
            try:
                chip = self.build(asked, check, places)
            except REFUSALS as error:
                raise self._told(error, variant, asked.names, asked.kept) from None
            tried.chips.append(chip)
        return BuiltPiece(chip, asked.names, number)

    def build(self, asked: _Asked, check: Check, places: Places) -> ChipKernel:
        """A piece for itself."""
        memo = self.tried(asked).memo
        return self.builder.build(
            asked.plain, asked.target, asked.kept, check, places, asked.rows, memo
        )

    def tried(self, asked: _Asked) -> Tried:
        """What is known of a piece and its equals."""
        return self.known.setdefault(asked.key, Tried())

    def asked(self, variant: Variant) -> _Asked:
        """A variant as others may be that do the same."""
        plain, names = with_plain_names(variant.piece)
        kept = self._kept(names, variant)
        rows = frozenset(p for p in kept if names[p] in self.split.in_order)
        return _Asked(plain, variant.piece.name, variant.target, kept, rows, names)

    def _kept(self, names: Mapping[str, str], variant: Variant) -> frozenset[str]:
        """The parameters that pass between pieces: they are as others find them."""
        passed = self.split.passed.keys() | {r.buffer.name for r in variant.inside}
        return frozenset(p for p, name in names.items() if name in passed)

    def _told(
        self,
        error: TilewrightError,
        variant: Variant,
        names: Mapping[str, str],
        kept: Collection[str],
    ) -> TilewrightError:
        """What is said of a piece that cannot be built, in the names that its author gave."""
        if isinstance(error, MadeOtherwise) or not (self.has_author and variant.plain):
            return error  # which has them, or there are none
        try:
            named = [names[p] for p in kept]
            self.builder.build(
                variant.piece, variant.target, named, lambda chip: None, {}, (), Memo()
            )
        except REFUSALS as own:
            return own
        return error

    def _spilled(self, resident: Resident) -> BuiltPiece:
        """What copies an array to the memory outside, as it lies inside."""
        name, inside = resident.name, resident.buffer.name
        made, outside = self.passed.buffers[inside], self.passed.buffers[name]
        chip = build_spill(made, name, outside.memory, self.target)
        return BuiltPiece(chip, {inside: inside, name: name}, resident.maker, spills=True)


class _Ahead:
    """Finds out about pieces what is not known, many at a time, as if of each the first variant
    were taken. A piece whose forms follow the places of what others make waits for these: they are
    then built as they will be, of what was found, and it is asked about with their results where
    they lie."""

    def __init__(self, pieces: _Pieces) -> None:
        self.pieces, split = pieces, pieces.split
        self.first: list[tuple[Variant, _Asked]] = []
        residents = pieces.residents.copied()
        for number in range(len(split.pieces)):
            variant = residents.variants(number)[0]
            residents.take(number, variant)
            self.first.append((variant, pieces.asked(variant)))
        self.makers = {p.outputs[0].name: k for k, p in enumerate(split.pieces)}
        self.parts = {join.result.name: join.parts for join in split.joins}
        self.passed = PassedArrays(split.borders, joins=split.joins)
        self.scout = replace(pieces, known={}, passed=self.passed, has_author=False)
        self.left: set[int] = set()  # pieces that wait for others
        self.seen: set[int] = set()  # those whose results are placed, or refused

    def find(self) -> None:
        """Asks about the pieces that wait for none, then about those that wait for them, as long as
        there are several and other processes."""
        builder, ready = self.pieces.builder, list[int]()
        for number, (_, asked) in enumerate(self.first):
            if asked.key not in self.pieces.known:
                if builder.independent(asked.plain, asked.target, asked.kept):
                    ready.append(number)
                else:
                    self.left.add(number)
        done = 0
        while len(ready) > 1 and (found := self._ask(ready, done)):
            done += found
            ready = [n for n in sorted(self.left) if all(map(self._place, self._read(n)))]
            self.left -= set(ready)

    def _ask(self, numbers: Sequence[int], done: int) -> int:
        """Asks about pieces, equal ones once; returns about how many there is an answer, beside
        the `done` of before."""
        builder, known = self.pieces.builder, self.pieces.known
        different: dict[Hashable, str] = {}
        for number in numbers:
            asked = self.first[number][1]
            places = self.passed.places_of(asked.names)
            key = asked.key, *((p, at.tobytes()) for p, at in sorted(places.items()))
            different.setdefault(key, str(number))
            self.pieces.tried(asked)
        waiting = {self.first[n][1].key for n in self.left}
        total = done + len(different) + len(waiting)
        builder.watch("kernels planned", done, total)
        count = 0
        with closing(builder.in_processes(self._answers, [*different.values()], 1)) as found:
            for count, (_, answers) in enumerate(found, 1):
                builder.watch("kernels planned", done + count, total)
                for key, new in answers.items():
                    known.setdefault(key, Tried()).memo.answers.update(new)
        return count

    def _answers(self, name: str) -> Answers:
        """What is found of a piece, as it is as well, where it has to be compared with that."""
        variant, asked = self.first[int(name)]
        plain = self.pieces.residents.plain(int(name))
        memos = {a.key: self.pieces.tried(a).memo for a in (asked, self.pieces.asked(plain))}
        before = {key: set(memo.answers) for key, memo in memos.items()}
        with suppress(*REFUSALS):  # they are found again
            built = self._build(variant)
            if len(memos) > 1 and self.pieces.may_beat(plain, built.cycles / SAME):
                self._build(plain)
        return {
            key: {q: answer for q, answer in memo.answers.items() if q not in before[key]}
            for key, memo in memos.items()
        }

    def _build(self, variant: Variant) -> ChipKernel:
        asked = self.pieces.asked(variant)
        check = partial(self.passed.check, names=asked.names)
        return self.pieces.build(asked, check, self.passed.places_of(asked.names))

    def _read(self, number: int) -> list[str]:
        """What a piece reads that others make, by the names outside."""
        made = self.makers.keys() | self.parts.keys()
        return [b.name for b in self.pieces.split.pieces[number].inputs if b.name in made]

    def _place(self, name: str) -> bool:
        """Whether it is known where an array lies, once its makers are built."""
        if name in self.parts:
            return all(map(self._place, self.parts[name])) and name in self.passed.buffers
        number = self.makers[name]
        if number not in self.left | self.seen:
            self.seen.add(number)
            with suppress(*REFUSALS):
                self._pass(number)
        return name in self.passed.buffers

    def _pass(self, number: int) -> None:
        """Builds a piece of what was found, and finds where its result lies."""
        variant, asked = self.first[number]
        self.scout.known.setdefault(asked.key, Tried(memo=self.pieces.tried(asked).memo))
        built = self.scout.built_as(number, variant)
        (result,) = built.chip.kernel.outputs
        (outside,) = self.pieces.split.pieces[number].outputs
        name = built.names[result.name]
        self.passed.add(built.chip, name)
        if name != outside.name:
            self.passed.copy(name, outside.name, self.pieces.split.passed[outside.name].memory)


def _passes(check: Check, chip: ChipKernel) -> bool:
    try:
        check(chip)
    except ScheduleError:
        return False
    return True
