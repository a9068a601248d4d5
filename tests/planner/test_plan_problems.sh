#!/bin/bash
# Plans of placement problems: never behind plain online best fit, small ones the best of all, and little memory.
. "$(dirname "$0")/../lib.sh"
ok "plans of problems beside best fit and an exhaustive search" python3 "$ROOT/tests/planner/problems.py" "$TOOL"
done_testing
