"""Prints TAP for the tests of engines, each a program of its own that the Makefile starts."""
counts = {"passed": 0, "failed": 0, "skipped": 0}


def _number():
    return sum(counts.values())


def ok(name, good, shown=""):
    """One test; `shown` is printed where it failed. Whether it passed."""
    counts["passed" if good else "failed"] += 1
    if not good:
        for line in str(shown).splitlines():
            print(f"# {line}")
    print(f"{'ok' if good else 'not ok'} {_number()} - {name}", flush=True)
    return bool(good)


def equal(name, got, wanted, shown=""):
    """One test: both are the same."""
    return ok(name, got == wanted, f"got:  {got!r}\nwant: {wanted!r}\n{shown}")


def skip(name, reason):
    """A test that cannot run here."""
    counts["skipped"] += 1
    print(f"ok {_number()} - {name} # SKIP {reason}", flush=True)


def close():
    """The plan and the closing line; the exit status."""
    print(f"1..{_number()}")
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", flush=True)
    return 1 if counts["failed"] or not counts["passed"] else 0
