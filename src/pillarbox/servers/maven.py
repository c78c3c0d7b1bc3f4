"""Fetch Kafka and Pulsar with Maven into the cache folder."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pillarbox.servers.errors import ServerUnavailable
from pillarbox.servers.locate import (
    INSTALL,
    KAFKA_VERSION,
    PULSAR_VERSION,
    kafka_home,
    pulsar_home,
)

_FETCH_SECONDS: Final = 1800.0
_TAIL: Final = 1500

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pillarbox.servers</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
{body}
</project>
"""
_KAFKA: Final = f"""\
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.25.4</version>
    </dependency>
  </dependencies>"""
_PULSAR: Final = f"""\
  <build>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId>
        <artifactId>maven-dependency-plugin</artifactId>
        <version>3.6.1</version>
        <configuration>
          <artifactItems>
            <artifactItem>
              <groupId>org.apache.pulsar</groupId>
              <artifactId>pulsar-server-distribution</artifactId>
              <version>{PULSAR_VERSION}</version>
              <type>tar.gz</type>
              <classifier>bin</classifier>
              <outputDirectory>${{project.basedir}}/unpacked</outputDirectory>
            </artifactItem>
          </artifactItems>
        </configuration>
      </plugin>
    </plugins>
  </build>"""


@dataclass(frozen=True, slots=True)
class Download:
    """Something that Maven fetches, and the folder it ends in."""

    name: str
    title: str
    size: str
    pom: str
    goals: Sequence[str]
    result: str
    home: Path


def downloads() -> tuple[Download, ...]:
    """Describe what is fetched, for the cache folder as it is set now."""
    kafka = Download(
        name="kafka",
        title=f"Kafka {KAFKA_VERSION}",
        size="45 MB",
        pom=_POM.format(name="kafka", body=_KAFKA),
        goals=(
            "dependency:copy-dependencies",
            "-DoutputDirectory=home/lib",
            "-DincludeScope=runtime",
        ),
        result="home",
        home=kafka_home(),
    )
    pulsar = Download(
        name="pulsar",
        title=f"Pulsar {PULSAR_VERSION}",
        size="245 MB",
        pom=_POM.format(name="pulsar", body=_PULSAR),
        goals=("org.apache.maven.plugins:maven-dependency-plugin:3.6.1:unpack",),
        result=f"unpacked/apache-pulsar-{PULSAR_VERSION}",
        home=pulsar_home(),
    )
    return kafka, pulsar


def fetch(download: Download) -> None:
    """Fetch into a folder beside the final one and rename it, so that half a download is never used."""
    maven = shutil.which("mvn")
    if maven is None:
        raise ServerUnavailable(download.name, "mvn (Maven) is not installed", INSTALL)
    download.home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=download.home.parent) as scratch:
        folder = Path(scratch)
        (folder / "pom.xml").write_text(download.pom, encoding="utf-8")
        _run(download, [maven, "-q", "-B", *download.goals], folder)
        result = folder / download.result
        (folder / "pom.xml").rename(result / "pom.xml")
        if not download.home.exists():
            result.rename(download.home)


def _run(download: Download, command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "MAVEN_OPTS": os.environ.get("MAVEN_OPTS", "-Xmx512m")},
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_FETCH_SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        problem = f"Maven did not fetch {download.title} within {_FETCH_SECONDS:.0f} s"
        raise ServerUnavailable(download.name, problem, INSTALL) from late
    if done.returncode != 0:
        problem = f"Maven could not fetch {download.title}: {done.stdout[-_TAIL:].strip()}"
        raise ServerUnavailable(download.name, problem, "see Maven's words above")
