"""TAP for the tests of the formats, and how they ask the library about a model."""
import json
import os
import subprocess
import sys
import tempfile
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD_DIR", os.path.join(ROOT, "build"))
DUMP = os.path.join(BUILD, "tests", "formats", "model_dump")
SHARED_MODELS = os.path.join(ROOT, "..", "shared", "data", "models")

_count = 0
_failed = 0


class Refused(Exception):
    """The library refused the model; its text is the error line."""


def dump(path, brief=False):
    """What the library makes of a model. Raises Refused; anything but an orderly end is an error."""
    done = subprocess.run([DUMP] + (["--brief"] if brief else []) + [path], capture_output=True, timeout=50, check=False)
    if done.returncode == 1:
        lines = done.stderr.decode("utf-8").splitlines()
        if len(lines) != 1 or done.stdout:
            raise AssertionError(f"not one line of error: {done.stderr!r} {done.stdout[:200]!r}")
        raise Refused(lines[0])
    if done.returncode != 0:
        raise AssertionError(f"ended with {done.returncode}: {done.stderr.decode('utf-8', 'replace')[-2000:]}")
    return json.loads(done.stdout)


def equal(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def refused(path, *words):
    """The model is refused in one line that names the file and has each of the words."""
    try:
        model = dump(path, brief=True)
    except Refused as error:
        for word in words:
            if word not in str(error):
                raise AssertionError(f"no {word!r} in: {error}") from error
        return str(error)
    raise AssertionError(f"taken: {model}")


def run(tests):
    """Runs each test(folder) with a folder of its own and prints TAP; the exit status of the script."""
    global _count, _failed
    for test in tests:
        _count += 1
        try:
            with tempfile.TemporaryDirectory(prefix="gpucache-test.") as folder:
                why = test(folder)
            print(f"ok {_count} - {test.__name__}" + (f" # SKIP {why}" if why else ""))
        except Exception:  # pylint: disable=broad-except
            _failed += 1
            print(f"not ok {_count} - {test.__name__}")
            print("".join("# " + line + "\n" for line in traceback.format_exc().splitlines()), end="")
        sys.stdout.flush()
    print(f"1..{_count}")
    return 1 if _failed or not _count else 0
