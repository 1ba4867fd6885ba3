"""Makes the read-only face of the site's Slurm, with the identity that its policy names for reading."""

from __future__ import annotations

from rerail.recovery.site_policy import SitePolicy
from rerail.tools.clusters.slurm_read import SlurmReader
from rerail.tools.clusters.slurm_rest import SlurmRest
from rerail.tools.clusters.slurm_rest_read import SlurmRestReader, TextFirst


def slurm_reader(policy: SitePolicy, *, limit_s: float = 20.0) -> SlurmReader:
    """Return what reads Slurm; a command or request may take `limit_s` seconds."""
    reader = SlurmReader(prefix=policy.identities.reader, limit_s=limit_s)
    if not policy.identities.reader_socket:
        return reader
    rest = SlurmRest(policy.identities.reader_socket, limit_s=limit_s)
    return TextFirst(reader, SlurmRestReader(rest))
