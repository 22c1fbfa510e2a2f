"""What all tests share: no time limit on one example of a property, since a busy machine makes any of them slow."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
