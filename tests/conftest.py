"""One profile for all property tests: a slow machine is no fault of the code, so an example has no deadline. Nor is an example
explained: for that hypothesis traces every line that runs, an engine's too, which makes such a test many times slower."""

from __future__ import annotations

import os

from hypothesis import Phase, settings

PHASES = [phase for phase in Phase if phase is not Phase.explain]
settings.register_profile("default-without-deadline", deadline=None, phases=PHASES)
settings.register_profile("thorough", deadline=None, max_examples=3000, phases=PHASES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default-without-deadline"))
