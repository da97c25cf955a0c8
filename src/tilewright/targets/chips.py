"""The chips that come with the compiler, by the names that the command line knows."""

from collections.abc import Callable, Mapping

from tilewright.target.target import Target
from tilewright.targets.dsp import dsp
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

CHIPS: Mapping[str, Callable[[], Target]] = {"dsp": dsp, "tiny": tiny, "vta": vta}
