"""Every setting, its default and where it may come from: environment first, then `rerail.toml`.

`rerail.configured` reads environment and file for it. Unknown keys are errors, so that a misspelt setting is
not silently without effect.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from rerail.configured import CLUSTER, DATA_DIR, from_environment, from_file, without_home
from rerail.domain.record import Record
from rerail.domain.secret import Secret
from rerail.errors import ConfigError


class Settings(Record):
    """Settings of one process; `RERAIL_<NAME>` in the environment overrides the file."""

    cache_dir: Path = Path("~/.cache/rerail")
    """Where compiled rules lie; safe to delete."""
    scan_engine: Literal["", "hyperscan", "re2", "re"] = ""
    """Force one scan engine; empty takes the fastest that is installed."""
    workers: int = 0
    """Processes that read logs; 0 takes one per CPU core."""
    rules_dir: Path | None = None
    """A folder of further rule files of this site."""
    data_dir: Path = Path(DATA_DIR)
    """The folder of incidents and everything else that must not be lost."""
    store_url: str = ""
    """postgresql://user@host/database; empty keeps the store as SQLite in the data folder."""
    cluster: str = CLUSTER
    """The name of this cluster in incidents; job ids are unique within it."""
    model_url: str = ""
    """Base URL of an OpenAI-compatible endpoint (http://host:8000/v1); empty means no model."""
    model: str = ""
    """The model's name at that endpoint."""
    model_key: Secret = Secret("")
    """The endpoint's key; local servers need none."""
    model_proxy: str = ""
    """A proxy to the endpoint (http://proxy:3128); HTTP_PROXY and its kin are not looked at."""
    model_answer: Literal["text", "tool", "schema"] = "text"
    """How the model returns its answer: JSON text works everywhere, tool and schema are stricter."""
    model_samples: int = 3
    """How often the model is asked; the samples vote on failure type and first fault."""
    model_max_seconds: float = 120.0
    """Seconds that the model may take for one incident, all samples together."""
    model_max_tokens: int = 120_000
    """Tokens, read and written, that one incident may cost."""
    model_max_calls: int = 24
    """Requests to the model for one incident."""
    model_hide_names: bool = False
    """Send stand-ins (HOST_1, USER_2, PATH_3) for hosts, users, folders and addresses; restored in the answer."""
    model_hide_pattern: str = ""
    """A regular expression of further names to hide: how this site calls its hosts, projects or people."""
    embedding_url: str = ""
    """Base URL of an OpenAI-compatible endpoint for embeddings; empty means a local one or none."""
    embedding_model: str = ""
    """The model's name there; without a URL `wordllama` (extra `embeddings`), `hashed`, or a folder with a
    sentence-transformers model; empty or `none` is words alone."""
    chroma_url: str = ""
    """http://host:8000 of a Chroma server; empty keeps vectors in the data folder."""
    runbooks_dir: Path | None = None
    """A folder of further runbook pages of this site."""
    model_price_in: float = 0.0
    """Price of a million tokens read, in any currency, for the report of cost."""
    model_price_out: float = 0.0
    """Price of a million tokens written."""
    scheduler: Literal["", "slurm", "kubernetes"] = ""
    """Which scheduler runs the jobs here; empty means none that recovery may speak to."""
    webhook_secret_file: Path | None = None
    """A file with the secret of webhooks, `whsec_...`; readable by the daemon's account only."""
    jobs_file: Path | None = None
    """The site's record of jobs (`sacct -P`), with which `rerail report` and the fleet page tell chance from a bad node."""
    slack_token: Secret = Secret("")
    """The token of a Slack app's bot (xoxb-...), where `notify.slack` in the policy names no file with it."""
    pagerduty_key: Secret = Secret("")
    """The key of a PagerDuty integration, where `notify.pagerduty` names no file with it."""
    apprise_urls: Secret = Secret("")
    """Apprise's URLs, one or several words, where `notify.apprise` names no file with them."""
    policy_file: Path | None = None
    """The recovery policy (YAML); without one every rule observes and nothing is executed."""


@lru_cache(maxsize=1)
def load_settings() -> Settings:
    """Read the configuration file, if any, and the environment.

    Raises:
        ConfigError: for an unknown key or a value of the wrong kind, naming file and key.
    """
    values, origin = from_file()
    for key in values:
        if key not in Settings.defaults:
            from difflib import get_close_matches

            near = get_close_matches(key, Settings.defaults, 1)
            raise ConfigError(
                f"{origin}: unknown setting {key!r}",
                subject=key,
                hint=f"did you mean {near[0]!r}?" if near else "rerail config show",
            )
    try:
        given = values | from_environment(tuple(Settings.defaults))
        return Settings.model_validate(without_home() | given)
    except ValueError as error:
        from pydantic import ValidationError

        if not isinstance(error, ValidationError):
            raise
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else "?"
        raise ConfigError(
            f"setting {key!r}: {first['msg']} (got {first.get('input')!r})",
            subject=key,
            hint=f"set RERAIL_{key.upper()} or {key} in rerail.toml",
        ) from None
