"""Small HTTP requests to a server of our own: no proxies, JSON in and out, every failure one exception."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from hybridctl.errors import HybridctlError


class NoAnswer(HybridctlError):
    """The server can't be reached, or hung up."""


@dataclass(frozen=True)
class Reply:
    status: int
    text: str

    def json(self) -> Any:
        """Raises HybridctlError where the text is no JSON."""
        try:
            return json.loads(self.text)
        except ValueError as error:
            raise HybridctlError(f"the server answered with no JSON: {self.text[:200]}") from error

    @property
    def problem(self) -> str:
        """What an error reply says."""
        try:
            document = json.loads(self.text)
        except ValueError:
            return f"{self.status}: {self.text[:300]}"
        inner = document.get("error", document) if isinstance(document, dict) else document
        return f"{self.status}: {inner.get('message', inner) if isinstance(inner, dict) else inner}"[:400]


class Client:
    """A server by its address.

    Args:
        own: a server that we started: its certificate names no loopback address, and is not checked.
    """

    def __init__(self, url: str, api_key: str | None = None, own: bool = False) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if url.startswith("https:"):
            context = ssl.create_default_context()
            if own:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str, seconds: float = 5.0) -> Reply:
        return self._send(urllib.request.Request(self.url + path, headers=self._headers), seconds)

    def post(self, path: str, document: Any, seconds: float = 120.0) -> Reply:
        headers = {**self._headers, "Content-Type": "application/json"}
        data = json.dumps(document).encode()
        return self._send(urllib.request.Request(self.url + path, data=data, headers=headers), seconds)

    def _send(self, request: urllib.request.Request, seconds: float) -> Reply:
        try:
            with self._opener.open(request, timeout=seconds) as answer:
                return Reply(answer.status, answer.read().decode("utf-8", "replace"))
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.read().decode("utf-8", "replace"))
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise NoAnswer(f"{self.url} does not answer: {reason}") from error
