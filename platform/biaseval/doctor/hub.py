"""Hugging Face: whether models can be fetched, and by whom."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator

from biaseval.doctor.finding import Finding, State

_PATIENCE_S = 5.0
_YES = {"1", "true", "yes", "on"}


def hub() -> Iterator[Finding]:
    """Say whether names of models work, and gated ones."""
    from huggingface_hub import get_token

    if any(os.environ.get(name, "").lower() in _YES for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")):
        found = "offline, as HF_HUB_OFFLINE says: local directories, and names that are in the cache"
        yield Finding("hugging face", State.ok, found, facts={"is_offline": True})
        return
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    yield judge_hub(endpoint, get_token())


def judge_hub(endpoint: str, token: str | None) -> Finding:
    """Return what is to say of a hub that is asked who we are."""
    facts = {"endpoint": endpoint, "has_token": token is not None}
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(
        f"{endpoint}/api/{'models?limit=1' if token is None else 'whoami-v2'}", headers=headers
    )
    try:
        urllib.request.urlopen(request, timeout=_PATIENCE_S).close()
    except urllib.error.HTTPError as error:
        if token is not None and error.code in (401, 403):
            remedy = "make another (hf auth login, or HF_TOKEN), or take it away: hf auth logout, unset HF_TOKEN"
            return Finding("hugging face", State.problem, f"{endpoint} refuses the token ({error.code})", remedy, facts)
        remedy = "wait, or give models as local directories"
        return Finding("hugging face", State.warning, f"{endpoint} answers {error.code} {error.reason}", remedy, facts)
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        remedy = "give models as local directories, and set HF_HUB_OFFLINE=1, so that nothing waits for the hub"
        return Finding("hugging face", State.warning, f"{endpoint} is out of reach ({reason})", remedy, facts)
    if token is None:
        found = f"{endpoint} answers; no token, so gated models (Llama, Gemma) are out of reach"
        return Finding("hugging face", State.ok, found, facts=facts)
    return Finding("hugging face", State.ok, f"{endpoint} answers and knows the token", facts=facts)
