"""All corpora of decisions, by the name of the file that has their lines."""

import decisions_bounds
import decisions_bundles
import decisions_chips
import decisions_parts
import decisions_programs
import decisions_random
import decisions_streams
from decisions import Corpus

CORPORA: dict[str, Corpus] = {
    **decisions_programs.CORPORA,
    **decisions_parts.CORPORA,
    **decisions_random.CORPORA,
    **decisions_chips.CORPORA,
    **decisions_streams.CORPORA,
    **decisions_bounds.CORPORA,
    **decisions_bundles.CORPORA,
}
