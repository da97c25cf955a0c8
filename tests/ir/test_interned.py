"""Expressions and buffers, of which there is one object for each value."""

import copy
import gc
import math
import os
import pickle
import signal
import sys
import threading
import time
import weakref

import pytest
from hypothesis import given
from records import DIFFERENT, rebuilt
from strategies import exprs

from tilewright.base import node
from tilewright.base.dtype import bool_, f32, f64, index
from tilewright.base.node import known_record
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Const,
    Load,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    const,
)


@given(exprs())
def test_making_one_again_gives_the_same_object(e):
    assert rebuilt(e) is e
    assert all(rebuilt(part) is part for part in e.walk())


def test_constants_are_one_object_just_when_their_bits_are_the_same():
    for i, a in enumerate(DIFFERENT):
        for j, b in enumerate(DIFFERENT):
            assert (Const(a.value, a.dtype) is b) == (i == j), (a, b)


def test_nan_is_one_constant_whichever_object_it_is():
    nans = [math.nan, float("nan"), math.inf - math.inf]
    assert len({Const(x, f32) for x in nans}) == 1
    assert Const(nans[0], f32) is not Const(nans[0], f64)


def test_zeros_keep_their_sign():
    zero, negative = Const(0.0, f32), Const(-0.0, f32)
    assert zero is not negative
    assert math.copysign(1, Const(-0.0, f32).value) == -1
    assert math.copysign(1, Const(0.0, f32).value) == 1


def test_numbers_of_different_python_types_are_different():
    """1, True and 1.0 are equal to Python, and what is made of one must not give another."""
    for values in ((1, True, 1.0), (True, 1.0, 1), (1.0, 1, True)):
        consts = [Const(v, index) for v in values]
        assert [type(c.value) for c in consts] == [type(v) for v in values]
        symbols = [Symbol("n", v, v) for v in values]
        assert [type(s.upper) for s in symbols] == [type(v) for v in values]
        buffers = [Buffer("b", f32, (v,)) for v in values]
        assert [type(b.shape[0]) for b in buffers] == [type(v) for v in values]


def test_every_field_counts():
    i = Var("i")
    different = [
        i, Var("j"), Var("i", f32), Symbol("i"), Symbol("i", 2), Symbol("i", 1, 9),
        Binary(BinaryOp.ADD, i, i), Binary(BinaryOp.MUL, i, i), Binary(BinaryOp.ADD, i, Var("j")),
        Compare(CompareOp.LT, i, i), Unary(UnaryOp.NEG, i), Cast(f32, i), Cast(f64, i),
        Load(Buffer("b", f32, (4,)), (i,)), Load(Buffer("b", f32, (4,), "sram"), (i,)),
    ]  # fmt: skip
    assert len(set(map(id, different))) == len(different)
    assert all((a == b) == (a is b) for a in different for b in different)


def test_types_follow_from_operands():
    i, x = Var("i"), Load(Buffer("b", f32, (4,)), (Var("i"),))
    assert (x.dtype, (x + 1).dtype, (-x).dtype) == (f32, f32, f32)
    assert (Compare(CompareOp.LT, i, i).dtype, Unary(UnaryOp.ISNAN, x).dtype) == (bool_, bool_)
    assert (Symbol("n").dtype, (i + 1).dtype) == (index, index)


def test_arguments_as_functions_take_them():
    assert Var("i") is Var("i", index)
    assert Var("i") is Var(name="i")
    assert Var("i", dtype=f32) is Var("i", f32)
    assert Buffer("b", f32, (2,)) is Buffer("b", f32, (2,), memory="dram")
    i = Var("i")
    assert Binary(BinaryOp.ADD, b=i, a=i) is Binary(BinaryOp.ADD, i, i)
    for wrong in (
        Var,
        lambda: Var("i", index, 3),
        lambda: Var("i", name="j"),
        lambda: Var("i", kind=f32),
    ):
        with pytest.raises(TypeError) as caught:
            wrong()
        assert str(caught.value) == "Var takes name, dtype"


@pytest.mark.parametrize("record", [Var("i"), const(3), Var("i") + 1, Buffer("b", f32, (2,))])
def test_records_cannot_be_changed(record):
    before = str(record)
    for name in ("dtype", "name", "a", "new"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(record, name, 1)
        with pytest.raises((AttributeError, TypeError)):
            delattr(record, name)
    assert str(record) == before


@given(exprs())
def test_a_copy_is_the_record_itself(e):
    assert copy.copy(e) is e
    assert copy.deepcopy(e) is e
    assert pickle.loads(pickle.dumps(e)) is e


def test_a_record_that_was_gone_is_read_back():
    i = Var("read back")
    data = pickle.dumps(i + 1)
    del i
    gc.collect()
    again = pickle.loads(data)
    assert again is Var("read back") + 1


# ---------------------------------------------------------------- memory


def test_what_nothing_refers_to_is_forgotten():
    v = Var("forgotten")
    e = (v + 1) * v
    gone = weakref.ref(e)
    key = (Var, "forgotten", index)
    assert known_record(key) is v
    del e, v
    gc.collect()
    assert gone() is None
    assert known_record(key) is None


def test_deep_expressions_are_made_compared_and_forgotten():
    def deep():
        e = Var("deep")
        for _ in range(20_000):
            e = Unary(UnaryOp.NOT, e)
        return e

    e = deep()
    gone = weakref.ref(e)
    assert deep() is e
    del e
    gc.collect()
    assert gone() is None


# ---------------------------------------------------------------- threads and forks


def quick_switches(function):
    """Calls a function while threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        return function()
    finally:
        sys.setswitchinterval(before)


def test_threads_get_the_same_object():
    """Records come and go in all threads at once."""
    workers, rounds = 6, 200
    barrier, made = threading.Barrier(workers), [[] for _ in range(workers)]

    def work(mine):
        for k in range(rounds):
            barrier.wait(timeout=60)
            v = Var(f"thread {k % 3}")  # some are gone again by the next round
            mine.append([v, v + k, (v + k) * 3, Load(Buffer(f"b{k % 3}", f32, (k + 1,)), (v,))])
            if k % 5 == 0:
                mine[:-1] = [None] * (len(mine) - 1)

    def run():
        threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    quick_switches(run)
    for row in zip(*made, strict=True):
        for objects in zip(*row, strict=True) if row[0] is not None else ():
            assert len(set(map(id, objects))) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_can_make_records():
    """Even if another thread is just entering one: nobody would give its lock back there."""
    entering = threading.Event()

    def enter():
        with node._MAKING:
            entering.set()
            time.sleep(0.1)

    v = Var("parent")
    e = v + 1
    thread = threading.Thread(target=enter)
    thread.start()
    assert entering.wait(timeout=60)
    child = os.fork()
    if child == 0:  # no tests in here
        same = Var("parent") + 1 is e and Var("child") + 1 is Var("child") + 1
        os._exit(0 if same else 1)
    thread.join()
    assert exit_status(child) == 0


def exit_status(child, seconds=30):
    """Of a process; None, and an end to it, if it hangs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
