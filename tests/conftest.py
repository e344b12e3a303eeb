"""One profile for all property tests: a slow machine is no fault of the code, so an example has no deadline."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("default-without-deadline", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=3000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default-without-deadline"))
