"""Settings of the property tests (a busy machine is no defect of an input or of the code), and Ctrl-C
as a terminal gives it: a shell starts background jobs with it ignored, and so would every child."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("shoal", deadline=None, suppress_health_check=(HealthCheck.too_slow,))
settings.load_profile("shoal")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
