"""A plugin of pytest that writes each test's outcome when it is known, so that neither a crash nor a hang loses one.

A line of JSON in the file SUITES_RECORD for the begin of a test, for its end with outcome and message, and for each file
that cannot be imported. SUITES_ONLY and SUITES_DONE: files with the names of tests that run, and of those that do not.
"""
import json
import os

import pytest

_process = os.getpid()  # children that a test forks write nothing
_reports = {}


def _write(**line):
    if os.getpid() == _process:
        with open(os.environ["SUITES_RECORD"], "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def _names(variable):
    path = os.environ.get(variable)
    if not path:
        return None
    with open(path, encoding="utf-8") as stream:
        return set(json.load(stream))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    only, done = _names("SUITES_ONLY"), _names("SUITES_DONE") or set()
    items[:] = [item for item in items if item.nodeid not in done and (only is None or item.nodeid in only)]


def pytest_collectreport(report):
    if report.failed:
        _write(collect=report.nodeid, message=_message(report))


def pytest_runtest_logstart(nodeid):
    _reports[nodeid] = []
    _write(start=nodeid)


def pytest_runtest_logreport(report):
    reports = _reports.setdefault(report.nodeid, [])
    reports.append(report)
    if report.when == "teardown":
        outcome, message = _outcome(reports)
        _write(end=report.nodeid, outcome=outcome, message=message)


def _outcome(reports):
    for report in reports:
        if report.failed and report.when != "call":
            return "error", f"{report.when}: {_message(report)}"
        if report.failed:
            return "failed", _message(report)
    for report in reports:
        if report.skipped:
            return ("xfailed" if hasattr(report, "wasxfail") else "skipped"), _message(report)
    return "passed", ""


def _message(report):
    """The error's own text; of a skip, its reason."""
    text = report.longrepr
    if isinstance(text, tuple):
        text = text[-1]
    else:
        crash = getattr(text, "reprcrash", None)
        text = crash.message if crash else str(text)[-600:]
    return str(text)[:600]
