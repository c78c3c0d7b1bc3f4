"""Install every server that is missing, and say so."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pillarbox.servers import debian, maven
from pillarbox.servers.debian import Package
from pillarbox.servers.errors import ServerUnavailable
from pillarbox.servers.locate import LOCATORS, available, find_java, network_refused

Say = Callable[[str], None]

_PACKAGES: Final = {
    "redis": Package("redis-server", brew="redis"),
    "rabbitmq": Package("rabbitmq-server", brew="rabbitmq"),
    "pgbouncer": Package("pgbouncer", brew="pgbouncer"),
    "postgres15": Package("postgresql-15", brew="postgresql@15"),
    "network": Package("iproute2", brew="iproute2mac"),
}
_JAVA: Final = Package("default-jre-headless", brew="openjdk")
_MAVEN: Final = Package("maven", brew="maven")


@dataclass(slots=True)
class Installation:
    """One run of the installer: what it says, and what it could not do."""

    say: Say
    problems: dict[str, str] = field(default_factory=dict)
    lists_fetched: bool = False

    def run(self) -> dict[str, str]:
        """Install what is missing; return the problem of each thing that still is."""
        refused = network_refused()
        wanted = [name for name in LOCATORS if name != "network" or refused is None]
        for name in wanted:
            if name in _PACKAGES and available(name) is not None:
                self._package(name, _PACKAGES[name])
        self._downloads()
        if refused is not None:
            self.say(f"network: left out: {refused.problem}")
        for name in wanted:
            reason = available(name)
            if reason is None:
                self.say(f"{name}: ready")
            else:
                self.problems.setdefault(name, reason)
        return self.problems

    def _downloads(self) -> None:
        missing = [download for download in maven.downloads() if not download.home.exists()]
        if not _has_java():
            self._package("java", _JAVA)
        if missing and shutil.which("mvn") is None:
            self._package("maven", _MAVEN)
        for download in missing:
            self.say(f"{download.name}: fetching {download.title} ({download.size}) with Maven …")
            self._attempt(download.name, partial(maven.fetch, download))

    def _package(self, name: str, package: Package) -> None:
        reason = debian.refuse_reason(package)
        if reason is not None:
            self.problems[name] = reason
            return
        if not self.lists_fetched:
            self.say("apt-get: fetching the package lists …")
            self.lists_fetched = True
            self._attempt("apt-get update", debian.update)
        self.say(f"{name}: installing {package.name} with apt-get …")
        self._attempt(name, partial(debian.install, package))

    def _attempt(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except ServerUnavailable as failed:
            self.problems[name] = f"{failed.problem}; {failed.remedy}"


def _has_java() -> bool:
    try:
        find_java()
    except ServerUnavailable:
        return False
    return True
