#!/bin/sh
# Lists the tree's own files, as paths from its root: from git in a clone, and where there is no git to ask, all but
# what a build makes.
set -eu
cd "$(dirname "$0")/.."
if ! { [ -e .git ] && git ls-files -co --exclude-standard 2> /dev/null; }; then
    find . ! -type d | sed 's,^\./,,'
fi |
    grep -vE '^(build|\.git|\.cache)/|(^|/)__pycache__/|\.o$|^compile_commands\.json$' |
    while read -r file; do [ ! -e "$file" ] || echo "$file"; done
