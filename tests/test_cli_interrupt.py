"""Ctrl-C where somebody drops KeyboardInterrupt (cli/interrupt.py)."""

import subprocess
import sys
import textwrap

import pytest


@pytest.mark.parametrize("error, told", [("SIGINT", ["interrupted"]), ("SIGUSR1", ["told", "end"])])
def test_control_c_in_a_callback(error, told):
    """Where Python drops exceptions."""
    text = f"""
        import os, signal, sys, time, weakref
        from tilewright.cli.interrupt import interrupts_kept

        class Thing:
            pass

        def callback(_):
            os.kill(os.getpid(), signal.{error})
            time.sleep(0.01)

        def other(*_):
            raise ValueError

        signal.signal(signal.SIGUSR1, other)
        sys.unraisablehook = lambda _: print("told")
        try:
            with interrupts_kept():
                thing = Thing()
                reference = weakref.ref(thing, callback)
                del thing
                time.sleep(20 if "{error}" == "SIGINT" else 0)
                print("end")
        except KeyboardInterrupt:
            print("interrupted")
        """
    command = [sys.executable, "-c", textwrap.dedent(text)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=True)
    assert (done.stdout.split(), done.stderr) == (told, "")


@pytest.mark.parametrize(
    "handler, told", [("default_int_handler", ["dropped", "seen"]), ("SIG_IGN", ["end"])]
)
def test_control_c_that_somebody_drops(handler, told):
    """It comes again, until it is seen; and never where it is ignored."""
    text = f"""
        import os, signal, time
        from tilewright.cli import interrupt

        signal.signal(signal.SIGINT, signal.{handler})
        interrupt.AGAIN = 0.1
        try:
            with interrupt.interrupts_kept():
                try:
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.2)
                except KeyboardInterrupt:
                    print("dropped")
                    time.sleep(20)
                print("end")
        except KeyboardInterrupt:
            print("seen")
            time.sleep(0.3)
        assert signal.getsignal(signal.SIGINT) is signal.{handler}
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        """
    command = [sys.executable, "-c", textwrap.dedent(text)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=True)
    assert (done.stdout.split(), done.stderr) == (told, "")
