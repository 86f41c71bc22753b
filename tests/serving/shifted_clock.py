"""`roskva` on a machine whose clock is wrong: shifted_clock.py SECONDS serve …"""

import sys
import time

from roskva.cli.main import main

_offset_s = int(sys.argv.pop(1))
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _offset_s
time.time_ns = lambda: _time_ns() + _offset_s * 10**9

main()
