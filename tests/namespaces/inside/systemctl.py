"""What the product asks of systemctl, answered by service.py's runners: show, kill, is-active."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import psutil

STATE = Path("/run/units")


def facts(unit: str) -> dict[str, object]:
    path = STATE / f"{unit}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"state": "inactive", "restarts": 0}


def main(arguments: list[str]) -> int:
    verb, *rest = [word for word in arguments if not word.startswith("--")]
    options = dict(word[2:].partition("=")[::2] for word in arguments if word.startswith("--"))
    match verb:
        case "show":
            for unit in rest:
                sys.stdout.write(
                    f"Id={unit}\nActiveState={facts(unit)['state']}\nNRestarts={facts(unit)['restarts']}\n\n"
                )
        case "is-active":
            sys.stdout.write(f"{facts(rest[0])['state']}\n")
            return 0 if facts(rest[0])["state"] == "active" else 3
        case "kill":
            number = signal.Signals[f"SIG{options['signal'].removeprefix('SIG')}"]
            for process in psutil.Process(int(str(facts(rest[0])["runner"]))).children(recursive=True):
                process.send_signal(number)
        case _:
            sys.stderr.write(f"this systemctl does not know {verb}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
