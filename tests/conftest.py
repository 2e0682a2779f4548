"""Set up for all tests: property tests without a wall clock, so that a busy machine fails nothing."""

from __future__ import annotations

import signal
import threading

import hypothesis

# A runner started in the background ignores Ctrl-C, and what it starts would inherit that: tests send it on purpose.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("suite", deadline=None, max_examples=50)
hypothesis.settings.load_profile("suite")
