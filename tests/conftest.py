"""Settings of the property tests: a busy machine is no defect of an input or of the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("shoal", deadline=None, suppress_health_check=(HealthCheck.too_slow,))
settings.load_profile("shoal")
