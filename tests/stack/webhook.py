"""Receives what Alertmanager sends to a webhook, and keeps it."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Notification:
    """One notification: Alertmanager's document, and when it came (unix time in seconds)."""

    document: dict[str, Any]
    received_s: float

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The alerts in it."""
        return list(self.document["alerts"])


class Webhook:
    """An HTTP server on loopback that takes notifications."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.notifications.append(Notification(json.loads(body), time.time()))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}/alerts"

    def alerts(self, run_id: str, status: str | None = None) -> list[dict[str, Any]]:
        """Return all alerts about a run in the order of arrival; with a status, those that fire or are resolved."""
        return [
            alert
            for notification in list(self.notifications)
            for alert in notification.alerts
            if alert["labels"].get("run_id") == run_id and status in (None, alert["status"])
        ]

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
