"""Azure's agent on a VM: how often it looks for commands and tells how they ended (docs/facts/azure.md#vm-agent).

Done here, not on day 0, as a change of that would replace machines (docs/decisions/0016).
"""

from __future__ import annotations

import re

from .. import files
from ..failure import ApplyError
from ..ledger import Ledger
from ..paths import NodePaths
from . import commands

PERIOD_S = 6
"""The agent's own default. The HPC image says 300."""
_SETTING = re.compile(r"^[ \t]*Extensions\.GoalStatePeriod[ \t]*=[ \t]*(\d+).*$", re.MULTILINE)
_RESTART_IN_S = 20
"""Later than our own end: a restart ends all that the agent started, a run command as well."""
_DEADLINE_S = 30.0


def look_often(paths: NodePaths, ledger: Ledger) -> None:
    """Make the agent look every few seconds, from shortly after this apply. On a machine without it, do nothing."""
    path = paths.agent_configuration
    try:
        before = path.read_text(encoding="utf-8")
        if (after := lowered(before)) == before:
            return
        files.write(path, after.encode(), path.stat().st_mode & 0o7777)
        timer = [f"--on-active={_RESTART_IN_S}", "--timer-property=AccuracySec=1s"]
        restart = ["systemctl", "try-restart", "walinuxagent.service"]
        commands.run(["systemd-run", "--collect", "--quiet", *timer, *restart], deadline_s=_DEADLINE_S)
    except FileNotFoundError:
        return
    except (ApplyError, OSError, ValueError) as error:
        ledger.warn(f"Azure's agent goes on looking for commands every few minutes only: {error}")


def lowered(text: str) -> str:
    """A configuration with a longer period made shorter; where none is set the agent's default is short already."""
    return _SETTING.sub(
        lambda found: found[0] if int(found[1]) <= PERIOD_S else f"Extensions.GoalStatePeriod={PERIOD_S}", text
    )
