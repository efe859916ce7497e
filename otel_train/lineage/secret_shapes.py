"""The known shapes of secrets within free text, each with a substring that must be there before its pattern is tried.

The substrings make the ordinary log message cheap: it holds none of them, and no pattern runs. Most shapes are passed
by at once where the text has no long run of word characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

REDACTED: Final = "[redacted]"


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape: a hint (in lower case, found in the lower-cased text), its pattern, and what takes its place."""

    hint: str
    pattern: re.Pattern[str]
    replacement: str = REDACTED


_START: Final = r"(?<![A-Za-z0-9])"


def _shape(hint: str, pattern: str, replacement: str = REDACTED, flags: int = 0) -> Shape:
    return Shape(hint, re.compile(pattern, flags), replacement)


# The user part of a URL, up to the last `@` before the path. The second branch is for passwords with an unescaped
# slash; a port and a path with an `@` (`http://h:80/@x`) are no such thing. `git` alone is what ssh remotes carry.
_USER_INFO: Final = (
    r"://(?!git@)(?:[^\s/?#\"'<>\\]{1,512}|[^\s/@:\"'<>\[]{0,128}:(?![0-9]{1,5}[/?#])[^\s\"'<>@]{1,256})@"
)

PRIVATE_KEY: Final = _shape(
    "-----",
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    flags=re.DOTALL,
)
# These may be short, so each has its turn in every text.
SHORT_SHAPES: Final = (
    _shape("@", _USER_INFO, f"://{REDACTED}@"),
    _shape("earer ", r"\b(bearer)[ \t]+(?=[a-z0-9._~+/-]*[0-9._~+/-])[a-z0-9._~+/-]{5,}=*", rf"\1 {REDACTED}", re.I),
)
# A text without so long a run of letters, digits, `_` and `-` holds none of the shapes below.
LONG_RUN: Final = 16
LONG_SHAPES: Final = (
    _shape(
        "basic ",
        r"\b(basic)[ \t]+(?=[A-Za-z0-9+/]*[A-Z0-9])[A-Za-z0-9+/]{12,}={0,2}(?![\w.-])",
        rf"\1 {REDACTED}",
        re.I,
    ),
    _shape("akia", _START + r"AKIA[A-Z0-9]{12,}(?![a-z])"),
    _shape("asia", _START + r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _shape("gh", _START + r"gh[pousr]_[A-Za-z0-9]{16,}"),
    _shape("github_pat_", _START + r"github_pat_[A-Za-z0-9_]{16,}"),
    _shape("gl", _START + r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|soat|oas)-[A-Za-z0-9_.-]{16,}"),
    _shape("hf_", _START + r"hf_[A-Za-z0-9]{16,}"),
    _shape("api_org_", _START + r"api_org_[A-Za-z0-9]{16,}"),
    # A digit or capital within keeps names such as `sk-learn-experiments-on-digits`.
    _shape("sk-", _START + r"sk-(?=[A-Za-z0-9_-]*[0-9A-Z])[A-Za-z0-9_-]{16,}"),
    _shape("k_live_", _START + r"[sr]k_live_[A-Za-z0-9]{10,}"),
    _shape("xox", _START + r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{8,}"),
    _shape("xapp-", _START + r"xapp-[A-Za-z0-9-]{8,}"),
    _shape("hooks.slack", r"(hooks\.slack\.com/(?:services|workflows|triggers))/[A-Za-z0-9/_-]+", rf"\1/{REDACTED}"),
    _shape("aiza", _START + r"AIza[A-Za-z0-9_-]{30,}"),
    _shape("ya29.", _START + r"ya29\.[A-Za-z0-9_-]{16,}"),
    _shape("gocspx-", _START + r"GOCSPX-[A-Za-z0-9_-]{16,}"),
    _shape("eyj", _START + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    # Neptune's tokens are JSON in base64, in one part.
    _shape("eyjhcglf", _START + r"eyJhcGlf[A-Za-z0-9+/_-]{20,}={0,2}"),
    _shape("npm_", _START + r"npm_[A-Za-z0-9]{30,}"),
    _shape("pypi-", _START + r"pypi-[A-Za-z0-9_-]{40,}"),
    _shape("nvapi-", _START + r"nvapi-[A-Za-z0-9_-]{20,}"),
    _shape("wandb_v", _START + r"wandb_v[0-9]+_[A-Za-z0-9_-]{20,}"),
    _shape("dapi", _START + r"dapi[0-9a-f]{32}(?:-[0-9])?(?![A-Za-z0-9])"),
    _shape("sig=", r"([?&]sig=)[^&\s\"'<>]+", rf"\1{REDACTED}", re.I),
    _shape("signature=", r"([?&](?:x-amz-|x-goog-)?signature=)[^&\s\"'<>]+", rf"\1{REDACTED}", re.I),
    _shape("-security-token=", r"([?&]x-amz-security-token=)[^&\s\"'<>]+", rf"\1{REDACTED}", re.I),
)
