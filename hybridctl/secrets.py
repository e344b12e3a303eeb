"""Takes credentials out of foreign text before it is shown or written. What is shown instead tells that something was there."""

from __future__ import annotations

import re
from typing import Any

from hybridctl.patterns import late

HIDDEN = "***"
# Where none of these stands, nothing is looked for: almost every text.
_HINT = re.compile(
    r"hf_|sk-|nvapi-|gh[pousr]_|github_pat|glpat-|xox|AKIA|ASIA|AIza|eyJ|bearer|authorization|cookie|token|secret|passw|pass=|api.?key"
    r"|access.?key|private.key|credential|_auth|_pass|_key|://",
    re.IGNORECASE,
)
# What its own form gives away.
_FORM = late(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|nvapi-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{35}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{6,})"
)
_COOKIE = late(r"(\b(?:set-)?cookie['\"]?\s{0,3}[:=]\s{0,3}['\"]?)[^\n'\"]{6,}", re.IGNORECASE)
# Of a key that begins or ends outside of the text, the part that is there.
_KEY_BLOCK = late(
    r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)(?:(?!-----BEGIN ).)*?(-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
# What a shell, a compose file or a manifest names so. A reference ($NAME), a switch and a plain number are no secret.
_VARIABLE = late(
    r"(\b[A-Z][A-Z0-9_]{0,60}(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|_PASS|_KEY|CREDENTIALS?|_AUTH)['\"]?"
    r"(?:\s{0,3}[=:]\s{0,3}|[ \t]*\n[ \t]*value:[ \t]*)['\"]?)"
    r"(?!(?i:none|null|true|false)\b|[$%<{*]|[\d.]{1,9}(?:[^\w.]|$))[^\s'\",;]{3,}",
)
_HEADER = late(
    r"(\b(?:proxy-)?authorization\b['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?:(?:bearer|basic|token)\s{1,3})?|\bbearer\s{1,3})"
    r"(?!(?:bearer|basic|token)\s)[^\s'\",;)}\]]{6,}",
    re.IGNORECASE,
)
# Not every token is a secret: eos_token, max_num_batched_tokens.
_NAMED = late(
    r"((?:(?:hf|hub|access|auth|api|refresh|session|id)[_-]?token|[?&]token|secret|password|passwd|(?<=_)pass|api[_-]?key|access[_-]?key)"
    r"['\"]?(?:\s{0,3}[=:]\s{0,3}|\s{1,3}(?=[^\s-]{12})(?=\S{0,99}\d))[\['\"]{0,2})"
    r"(?!(?:none|null|true|false)\b|[$%<{]|[\d.]+(?:[^\w.]|$))[^\s'\",;)}\]*&]{4,}",
    re.IGNORECASE,
)
_FLAG = late(r"(--?(?:[\w-]{1,40}-)?(?:api[_-]key|hf[_-]token|password|secret)[ =]{1,3}['\"]?)[^\s'\"-][^\s'\"]{3,}")
_URL = late(r"(\b[a-z][a-z0-9+.-]{1,15}://)[^\s/@'\"]{1,200}:[^\s/@'\"]{1,200}@", re.IGNORECASE)


def hide(text: str) -> str:
    """The text with :data:`HIDDEN` in place of tokens, keys, passwords, and the login part of addresses."""
    if not _HINT.search(text):
        return text
    text = _KEY_BLOCK.sub(_hidden_block, text)
    text = _FORM.sub(HIDDEN, text)
    text = _URL.sub(rf"\1{HIDDEN}@", text)
    for pattern in (_HEADER, _COOKIE, _VARIABLE, _NAMED, _FLAG):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def _hidden_block(match: re.Match[str]) -> str:
    """As many lines as before: they may be numbered."""
    return match[1] + HIDDEN + "\n" * (match[0].count("\n")) + match[2]


def hide_all(value: Any) -> Any:
    """A document of tables, lists and texts, with every text passed through :func:`hide`."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {key: hide_all(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_all(inner) for inner in value]
    return value
