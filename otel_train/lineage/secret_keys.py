"""Tells from a key's words whether its value is a secret, without blanking keys that merely contain such a word.

The rule, in this order: booleans and None are no secrets. A key with a word such as `password` or `secret`, or a pair
such as `api key`, hides its value, unless its last word says that the value is something about the secret (`path`,
`type`). Numbers under such a key stay where the key counts something (`num_…`, `max_…`). A key that ends with `token`
hides a text, but neither a number nor a tokenizer's special token. `tokens`, `key`, `keys`, `tokenizer` hide nothing.
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import Final

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SECRET: Final = _words(
    "secret secrets password passwords passwd passphrase passcode pwd credential credentials bearer authorization "
    "authentication auth cookie cookies apikey apikeys apitoken authtoken accesstoken accesskey secretkey privatekey "
    "authkey netrc"
)
# `key` and `keys` after one of these.
_KEY_OWNERS: Final = _words(
    "api access private secret encryption signing account ssh auth service subscription shared license wandb openai "
    "anthropic comet neptune hf huggingface aws azure gcp google client master session deploy storage app admin "
    "application consumer cohere mistral replicate nvidia ngc"
)
# `pass`, `pw` and `pat` after one of these; `forward_pass` and `first_pass` are none.
_PASS_OWNERS: Final = _words(
    "db database user smtp mysql pg postgres postgresql mongo redis ftp sftp root admin proxy ssh key login account "
    "mail email ldap es elastic gh github gl gitlab git azure ado bitbucket registry docker my http basic"
)
# A key that ends so names something about the secret, not the secret.
_ABOUT: Final = _words(
    "type types mode method methods enabled required url uri path paths file files filename dir directory folder "
    "length len size count dim limit ttl expiry expires timeout provider scheme env var variable policy name "
    "embedding embeddings dropout loss weight rate ratio header headers"
)
# Before a number these say that it counts or measures.
_COUNTS: Final = _words("num n max min number count total avg mean per")
# A token of a tokenizer or a model has one of these beside it.
_MODEL_TOKEN: Final = _words(
    "cls pad padding bos eos sep mask masked unk unknown eot eod eom image video audio begin end start stop special "
    "additional added memory mem num max min n use uses register class distill distillation patch prefix suffix think "
    "tool decoder encoder forced separator placeholder per level dropout prob ratio mixer mixing merge merging pooling "
    "pool keep drop out in input output target context prompt completion response first last next prev query latent "
    "text visual time state goal reward obs subword word char byte global local boundary blank sos go void learnable "
    "cost price loss"
)
# Behind `token` these leave it the secret that it is; anything else speaks of a model's tokens.
_TOKEN_TAIL: Final = _words(
    "prod production dev staging test testing read write ro rw value string old new backup secret key"
)
_TOKEN_OWNERS: Final = _words(
    "api access auth refresh bearer hf huggingface hub github gh gitlab gl git wandb slack bot session security oauth "
    "id private personal deploy job ci npm pypi aws azure gcp google openai anthropic neptune comet telegram discord "
    "jwt csrf xsrf user admin service vault app client login identity web push device sas influx influxdb grafana "
    "registry docker"
)
# <pad>, [CLS], </s>, <|endoftext|>: what a tokenizer calls a token.
_SPECIAL_TOKEN: Final = re.compile(r"(?:<[^\s<>]{1,40}>|\[[A-Za-z0-9_ ]{1,40}\])\Z")
_PLAIN_WORD: Final = re.compile(r"(?:true|false|none|null|yes|no|on|off|auto)?\Z", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?\Z")


def words_of(key: str) -> tuple[str, ...]:
    """Return the key's words in lower case: `hfToken`, `HF_TOKEN` and `hf-token` are `("hf", "token")`."""
    return tuple(word.lower() for word in _WORD.findall(key))


@lru_cache(maxsize=4096)
def sensitivity(key: str) -> str:
    """Return "secret" where the key hides any value, "token" where it hides a text, "" where it hides nothing."""
    words = words_of(key)
    if not words or words[-1] in _ABOUT:
        return ""
    if _names_secret(words):
        # `num_secrets=16` counts, `password=1234` does not.
        return "token" if words[0] in _COUNTS else "secret"
    if "token" in words:
        return "token" if _is_secret_token(words) else ""
    if words[-1] == "tokens" and len(words) > 1 and words[-2] in _TOKEN_OWNERS and words[0] not in _COUNTS:
        return "token"
    return ""


def _names_secret(words: tuple[str, ...]) -> bool:
    if not _SECRET.isdisjoint(words):
        return True
    for before, word in itertools.pairwise(words):
        if word in ("key", "keys") and before in _KEY_OWNERS:
            return True
    return len(words) > 1 and words[-1] in ("pass", "pw", "pat") and words[-2] in _PASS_OWNERS


def _is_secret_token(words: tuple[str, ...]) -> bool:
    place = words.index("token")
    before, after = words[:place], words[place + 1 :]
    if not all(word in _TOKEN_TAIL or word.isdigit() for word in after):
        return False
    if before and before[-1] in _TOKEN_OWNERS:
        return True
    return _MODEL_TOKEN.isdisjoint(before)


def is_secret(key: str, value: object) -> bool:
    """Tell whether `value` is to be hidden under `key`; a text that reads as a number counts as the number."""
    if value is None or isinstance(value, bool):
        return False
    kind = sensitivity(key)
    if not kind:
        return False
    if isinstance(value, str):
        if _PLAIN_WORD.match(value):
            return False
        return kind == "secret" or not (_NUMBER.match(value) or _SPECIAL_TOKEN.match(value))
    return kind == "secret" or not isinstance(value, int | float)
