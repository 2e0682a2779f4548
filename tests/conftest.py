"""Set up for all tests: property tests without a wall clock, so that a busy machine fails nothing."""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile("suite", deadline=None, max_examples=50)
hypothesis.settings.load_profile("suite")
