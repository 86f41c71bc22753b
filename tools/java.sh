#!/bin/sh
# The pipeline runs on Spark, and Spark on Java 17 or newer. Everything else works without.
set -u
java_version() { java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1; }
found=$(command -v java >/dev/null 2>&1 && java_version)
[ "${found:-0}" -ge 17 ] && exit 0
"$(dirname "$0")/debian.sh" java17:openjdk-17-jre-headless >/dev/null
found=$(command -v java >/dev/null 2>&1 && java_version)
[ "${found:-0}" -ge 17 ] && exit 0
echo "Java 17 or newer was not found: the pipeline is left out. On Debian or Ubuntu:"
echo "  apt-get install openjdk-17-jre-headless"
echo "elsewhere install a JDK of version 17 or newer and put its java on the PATH."
