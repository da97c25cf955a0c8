"""The ordered passes that take scheduled loops to code for a processor."""

from __future__ import annotations

from functools import partial

from tilewright.base.passes import Pass
from tilewright.lower.block_sums import block_sums
from tilewright.lower.expand_f8 import expand_f8
from tilewright.lower.expand_math import expand_math
from tilewright.lower.place_storage import place_storage
from tilewright.lower.run_in_order import run_in_order
from tilewright.lower.split_accumulators import split_accumulators
from tilewright.lower.unroll import unroll
from tilewright.target.target import Target


def native_passes(target: Target) -> tuple[Pass, ...]:
    """From scheduled loops to loops that are code but for their spelling."""
    return (
        run_in_order,  # first: to the others a bound loop is one like any
        expand_f8,
        expand_math,  # after expand_f8: it sees those as f32
        split_accumulators,  # before unroll: it looks for loops
        block_sums,  # after split_accumulators: what a lane adds up counts
        unroll,
        partial(place_storage, workers=target.cores),  # after unroll: no buffer is in a copied body
    )
