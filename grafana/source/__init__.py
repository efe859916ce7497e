"""Builds the dashboards and writes them as JSON."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # In favour of a form of dashboards that Grafana's file provisioning refuses.
    warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)
    import grafana_foundation_sdk.builders.dashboard
    import grafana_foundation_sdk.models.dashboardv2beta1  # noqa: F401
