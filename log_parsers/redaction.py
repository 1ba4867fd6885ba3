"""Masks secrets once, at ingestion, so that none reaches a screen, a store or a model.

A dozen patterns of our own: general secret scanners were measured to flood on log lines (hashes,
node names) or to miss the forms that training logs hold (environment dumps, URLs with passwords).
"""

from __future__ import annotations

import re

MASK = "[redacted]"

# Words one of which every secret form holds; a search for each is far cheaper than one expression.
_TRIGGERS = (
    "key", "token", "secret", "passw", "passphrase", "pwd", "credential", "authorization", "bearer",
    "eyj", "akia", "asia", "hf_", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat", "xox",
    "xapp-", "glpat", "nvapi", "aiza", "cookie", "signature", "sig=",
)  # fmt: skip
_VALUE = r"""(?:"[^"]{4,}"|'[^']{4,}'|[^\s,;&"'\])}]{6,})"""
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # Whole tokens whose form is public.
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), MASK),
    (re.compile(r"\bhf_[A-Za-z0-9]{20,}"), MASK),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"), MASK),
    (re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"), MASK),
    (re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}|\bnvapi-[A-Za-z0-9_-]{20,}"), MASK),
    (re.compile(r"\bxox[abposr]-[A-Za-z0-9-]{10,}|\bxapp-[A-Za-z0-9-]{10,}"), MASK),
    (re.compile(r"\bAIza[0-9A-Za-z_-]{30,}"), MASK),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"), MASK),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*"), MASK),
    # A password inside a URL; the host stays, it is evidence.
    (
        re.compile(r"(?P<k>[a-zA-Z][a-zA-Z0-9+.-]{0,30}://[^/\s:@]{0,100}):[^/\s@]{1,200}@"),
        r"\g<k>:" + MASK + "@",
    ),
    (
        re.compile(
            r"(?i)(?P<k>\bauthorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic|token)?\s*)[^\s'\"]{6,}"
        ),
        r"\g<k>" + MASK,
    ),
    (re.compile(r"(?P<k>\b[Bb]earer\s+)[A-Za-z0-9._~+/=-]{12,}"), r"\g<k>" + MASK),
    (
        re.compile(
            r"(?P<k>[?&](?:X-Amz-Signature|X-Amz-Security-Token|X-Amz-Credential|sig|Signature|token|access_token)=)[^&\s'\"]{6,}"
        ),
        r"\g<k>" + MASK,
    ),
)
# NAME=value, name: value, "name": "value"; the name must end in a secret word.
_ASSIGNMENT = re.compile(
    r"""(?ix)
    (?P<k> (?<![A-Za-z0-9]) [A-Za-z0-9_.-]{0,60}?
      (?: api[_-]?key | secret[_-]?key | access[_-]?key(?:[_-]?id)? | private[_-]?key | encryption[_-]?key
        | auth[_-]?token | access[_-]?token | session[_-]?token | security[_-]?token | refresh[_-]?token
        | (?<![a-z])token | client[_-]?secret | secret | password | passwd | passphrase | pwd
        | credentials? | cookie )
      ['"]? \s* (?: = | : (?!:) | => ) \s* )
    (?P<v> """
    + _VALUE
    + ")"
)
# What every assignment holds; the expression above costs milliseconds on a word of 3,000 letters.
_ASSIGNED = re.compile(
    r"(?i)(?:key(?:[_-]?id)?|token|secret|password|passwd|passphrase|pwd|credentials?|cookie)"
    r"['\"]?\s*[=:]"
)
_PLAIN = re.compile(
    r"^['\"]?(?:[\d.,:]+|none|null|true|false|\*+|<[^>]*>|\[redacted\].*|[A-Za-z]{1,11})['\"]?$",
    re.I,
)


def redact(text: str) -> str:
    """Return `text` with every secret that is recognised replaced by `[redacted]`."""
    lower = text.lower()
    if not any(word in lower for word in _TRIGGERS) and not ("://" in text and "@" in text):
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return _ASSIGNMENT.sub(_mask_value, text) if _ASSIGNED.search(text) else text


def _mask_value(match: re.Match[str]) -> str:
    value = match["v"]
    # Counts, booleans and plain words behind such a name are settings, not secrets
    # ("consumed tokens: 26022182912", "token: True"). Passwords are masked whatever they hold.
    if _PLAIN.match(value) and not re.search(r"(?i)passw|pwd|passphrase|secret", match["k"]):
        return match[0]
    return f"{match['k']}{MASK}"
