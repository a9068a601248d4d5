#!/bin/bash
# Models of every type, written and read by the formats' own Python packages, against what the library makes of them. In a virtual
# environment of their own, kept.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/formats/venv.sh"
exec "$venv/bin/python" "$ROOT/tests/formats/oracle.py"
