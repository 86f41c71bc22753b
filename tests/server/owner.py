"""A process that owns a shard until it is killed.

python -m tests.server.owner DIRECTORY SHARD
"""

import sys
from pathlib import Path

from roskva.server.directory import DataDirectory

if __name__ == "__main__":
    with DataDirectory.open_or_create(Path(sys.argv[1])).own(int(sys.argv[2])):
        sys.stdout.write("owned\n")
        sys.stdout.flush()
        sys.stdin.read()
