#!/bin/bash
# gpucache plan on ONNX graphs that ONNX's own package makes.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/formats/venv.sh"
exec "$venv/bin/python" "$ROOT/tests/planner/graphs.py"
