"""Hold apt's lock for some seconds, as an unattended upgrade does. Usage: hold-apt.py SECONDS."""

import fcntl
import sys
import time
from pathlib import Path

with Path("/var/lib/dpkg/lock-frontend").open("w") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    time.sleep(float(sys.argv[1]))
