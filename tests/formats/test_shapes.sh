#!/bin/bash
# Shapes and types of every value of whole models, against ONNX's own inference.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/formats/venv.sh"
exec "$venv/bin/python" -W ignore "$ROOT/tests/formats/shapes.py" "$@"
