"""Settings of the property tests (a busy machine is no defect of an input or of the code), and what a
terminal or a shell would otherwise decide: Ctrl-C, which a shell gives background jobs ignored, as would
every child have it; and whether processes of tests keep bytecode."""

from __future__ import annotations

import os
import signal
import sys

from hypothesis import HealthCheck, settings

CALM = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow,))
# each run of the suite draws the same examples; `make soak` draws new ones, and prints what repeats them
settings.register_profile("suite", CALM, derandomize=True)
settings.register_profile("soak", CALM, print_blob=True)
settings.load_profile("suite")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# hundreds of servers, agents and commands are started: compiled anew, each would take twice its time
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
