"""What all tests share: no time limit on one example of a property, since a busy machine makes any of them slow; and
an interrupt that works, also where the suite was started in the background of a shell, which then ignores it for all
processes below."""

import signal

from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
