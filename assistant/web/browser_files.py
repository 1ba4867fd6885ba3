"""Takes the browser files of others from their npm packages, by exact version and checksum.

`python -m rerail.assistant.web.browser_files` fills the folder that the server reads; a wheel holds
it already. Only the page needs them.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.errors import ConfigError, RerailError

LOCK = Path(__file__).with_name("browser_files.yaml")
FOLDER = Path(__file__).with_name("browser_files")
COMMAND = "make browser-files"


@dataclass(frozen=True, slots=True)
class BrowserFile:
    """One file of a package: where it lies inside, the name it is served under, its checksum."""

    package: str
    inside: str
    name: str
    sha256: str


@lru_cache(maxsize=4)
def locked(lock: Path = LOCK) -> tuple[BrowserFile, ...]:
    """Return every file of a lock."""
    return tuple(
        BrowserFile(package["name"], inside, file["as"], file["sha256"])
        for package in load_cached(lock)["packages"]
        for inside, file in package["files"].items()
    )


def check(folder: Path = FOLDER, lock: Path = LOCK) -> None:
    """Check that all files are there and are the ones of the lock.

    Raises:
        ConfigError: One is missing or another one than expected.
    """
    for file in locked(lock):
        path = folder / file.name
        if not path.is_file():
            raise ConfigError(
                f"the page's file {file.name} is not there", subject=file.name, hint=COMMAND
            )
        if hashlib.sha256(path.read_bytes()).hexdigest() != file.sha256:
            raise ConfigError(
                f"{path} is not the {file.name} that is expected", subject=file.name, hint=COMMAND
            )


def fetch(folder: Path = FOLDER, lock: Path = LOCK) -> None:
    """Take the files from their packages with `npm pack`, unless they are there.

    Raises:
        ConfigError: npm is missing, a package cannot be had, or a checksum is another one.
    """
    try:
        check(folder, lock)
        return
    except ConfigError:
        folder.mkdir(parents=True, exist_ok=True)
    for package in load_cached(lock)["packages"]:
        archive = _package(f"{package['name']}@{package['version']}", package["sha512"])
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for file in locked(lock):
                if file.package == package["name"]:
                    member = tar.extractfile(file.inside)
                    if member is None:
                        raise ConfigError(f"{file.inside} is not in {package['name']}")
                    (folder / file.name).write_bytes(member.read())
    check(folder, lock)


def _package(name: str, sha512: str) -> bytes:
    """Return the archive of a package; no script of it is run."""
    with tempfile.TemporaryDirectory() as place:
        try:
            subprocess.run(
                ["npm", "pack", "--ignore-scripts", "--silent", name],
                cwd=place,
                check=True,
                capture_output=True,
                timeout=300,
            )
        except FileNotFoundError:
            raise ConfigError(
                "npm is not installed; the page's files come from npm packages",
                subject="npm",
                hint="apt-get install npm, or install rerail from a wheel",
            ) from None
        except subprocess.SubprocessError as error:
            told = getattr(error, "stderr", None) or str(error).encode()
            raise ConfigError(
                f"npm pack {name} failed: {told.decode(errors='replace').strip()[-300:]}",
                subject=name,
                hint=COMMAND,
            ) from None
        archive = next(Path(place).glob("*.tgz")).read_bytes()
    if hashlib.sha512(archive).hexdigest() != sha512:
        raise ConfigError(f"the package {name} is another one than expected", subject=name)
    return archive


def main() -> None:
    """Fetch the files, for the Makefile."""
    try:
        fetch()
    except RerailError as error:
        hint = f"\nnext: {error.hint}" if error.hint else ""
        sys.exit(f"rerail: {error.message}{hint}")


if __name__ == "__main__":
    main()
