#!/bin/bash
# `infra prove --try` runs this on the first node, as root, as a run command of its own. It changes nothing.
set -eu
setting='s/^[[:blank:]]*Extensions\.GoalStatePeriod[[:blank:]]*=[[:blank:]]*\([0-9]*\).*/\1/p'
echo "attempt: $HUDDLE_ATTEMPT"
echo "agent period: $(sed -n "$setting" /etc/waagent.conf | tail -n 1)"
