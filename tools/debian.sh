#!/bin/sh
# Programs that Roskva is shown and tested with, from Debian's packages where that is possible.
# usage: tools/debian.sh COMMAND:PACKAGE…
set -u
missing=""
for wanted in "$@"; do
  command -v "${wanted%%:*}" >/dev/null 2>&1 || missing="$missing ${wanted##*:}"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing$missing from Debian's packages …"
  export DEBIAN_FRONTEND=noninteractive
  # Some come as services, which would start, and keep the ports that Roskva is to have.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
  fi
  { apt-get install --yes --quiet --no-install-recommends $missing ||
    { apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends $missing; }
  } >/dev/null 2>&1 && exit 0
fi
echo "not installed:$missing (on Debian or Ubuntu: apt-get install$missing); what needs them is left out"
