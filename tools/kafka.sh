#!/bin/sh
# A broker of Kafka for tests, by its coordinates from where Maven gets things. It is kept in .venv.
set -u
tools=$(dirname "$0")
place=$tools/../.venv/kafka
# As it was asked for: another version in kafka.xml is got anew.
cmp -s "$tools/kafka.xml" "$place/kafka.xml" && exit 0
"$tools/java.sh"
"$tools/debian.sh" mvn:maven
unfinished=$place.$$
trap 'rm -rf "$unfinished"' EXIT
trap 'exit 1' INT TERM
if command -v mvn >/dev/null 2>&1 && mkdir -p "$unfinished" &&
  mvn --quiet --batch-mode --strict-checksums --file "$tools/kafka.xml" \
    dependency:copy-dependencies -DoutputDirectory="$(realpath "$unfinished")/libs" \
    -DincludeScope=runtime >"$unfinished/log" 2>&1 &&
  cp "$tools/kafka.xml" "$unfinished/"; then
  rm -rf "$place" && mv "$unfinished" "$place" && exit 0
fi
echo "Kafka's broker was not to be had with Maven: what needs it is left out"
[ -s "$unfinished/log" ] && grep -m 3 ERROR "$unfinished/log"
exit 0
