"""The chips that come with the compiler, by the names that the command line knows."""

from collections.abc import Callable, Mapping

from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.dsp import dsp
from tilewright.targets.gemmini import gemmini
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

CHIPS: Mapping[str, Callable[[], Target]] = {
    f.__name__: f for f in (tiny, vta, gemmini, conv_engine, dsp)
}
