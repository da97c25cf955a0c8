"""tilewright: a deep-learning compiler that a chip team can retarget with one Python file."""
