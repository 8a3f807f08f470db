"""One profile for property tests: no deadlines, for machines are shared."""

from hypothesis import settings

settings.register_profile("bagwise", deadline=None)
settings.load_profile("bagwise")
