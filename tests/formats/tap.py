"""TAP for the tests of the formats, of estimates and of plans; the library asked about a model."""
import json
import os
import subprocess
import tempfile
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD_DIR", os.path.join(ROOT, "build"))
TOOL = os.path.join(BUILD, "gpucache")
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


def check(name, problems, skipped=None):
    """One test, which passes if there are no problems; `skipped` says why it did not run."""
    global _count, _failed
    _count += 1
    _failed += bool(problems)
    print(f"{'not ok' if problems else 'ok'} {_count} - {name}" + (f" # SKIP {skipped}" if skipped else ""))
    print("".join(f"# {line}\n" for problem in problems for line in str(problem).splitlines()), end="", flush=True)


def finish():
    """Prints the plan; the exit status of the script."""
    print(f"1..{_count}")
    return 1 if _failed or not _count else 0


def run(tests):
    """Runs each test(folder), which may return why it is skipped, with a folder of its own; the exit status of the script."""
    for test in tests:
        problems, skipped = [], None
        try:
            with tempfile.TemporaryDirectory(prefix="gpucache-test.") as folder:
                skipped = test(folder)
        except Exception:  # pylint: disable=broad-except
            problems = traceback.format_exc().splitlines()
        check(test.__name__, problems, skipped)
    return finish()
