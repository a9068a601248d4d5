#!/bin/bash
# gpucache plan --reorder and --recompute: held against exact searches of their own, and applied to the models.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/formats/venv.sh"
exec "$venv/bin/python" "$ROOT/tests/planner/schedules.py"
