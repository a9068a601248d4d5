#!/bin/bash
# Shapes and types of every operator in core/graph/ops.def, on small graphs made at random, against ONNX's own inference and
# reference implementation. SEED=N repeats a run, CASES=N sets how many graphs each operator gets.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/formats/venv.sh"
exec "$venv/bin/python" -W ignore "$ROOT/tests/formats/ops_oracle.py" "$@"
