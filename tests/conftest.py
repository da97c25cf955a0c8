"""For all tests: the same random examples in every run; `make fuzz` is for new ones."""

import hypothesis

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")
