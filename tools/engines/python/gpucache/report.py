"""Reads a JSON report (GPUCACHE_REPORT=NAME.json; docs/report.md) into plain objects."""
import json
import types

SCHEMA = "gpucache-report/1"
# Objects whose keys are names of things rather than fields: they stay dictionaries.
_MAPS = ("driver_calls", "by_api")


def _plain(value, key=None):
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = {name: _plain(item, name) for name, item in value.items()}
    return members if key in _MAPS else types.SimpleNamespace(**members)


def read_report(path):
    """The report in the file `path`, or in an open file. Its keys are attributes, under the report's own names:

        report = read_report("report.json")
        report.devices[0].reserved_bytes.peak
        report.devices[0].by_api["cudaMalloc"].count      by_api and driver_calls are dictionaries

    ValueError: the file is no report of this schema.
    """
    if hasattr(path, "read"):
        name, text = getattr(path, "name", "report"), path.read()
    else:
        name = path
        with open(path, "rb") as stream:
            text = stream.read()
    try:
        report = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name}: no JSON report: {error}") from error
    schema = report.get("schema") if isinstance(report, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"{name}: the schema is {schema!r}; {SCHEMA!r} is read")
    return _plain(report)
