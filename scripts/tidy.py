#!/usr/bin/env python3
"""Runs clang-tidy over compile_commands.json, two files at a time.

usage: tidy.py CACHE_FOLDER
A file that passed is recorded by a hash of its preprocessed text, the checks and the tool's version, so that only
changed files are checked again.
"""
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys


def check(entry, cache, salt):
    """None if the file is clean, else what clang-tidy printed."""
    preprocessed = subprocess.run([*entry["arguments"][:-2], "-E", entry["file"]], cwd=entry["directory"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if preprocessed.returncode != 0:
        return preprocessed.stderr.decode(errors="replace")
    with open(os.path.join(entry["directory"], entry["file"]), "rb") as stream:
        digest = hashlib.sha256(salt + preprocessed.stdout + stream.read()).hexdigest()
    passed = os.path.join(cache, digest)
    if os.path.exists(passed):
        return None
    result = subprocess.run(["clang-tidy", "--quiet", "-p", entry["directory"], entry["file"]],
                            cwd=entry["directory"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if result.returncode != 0:
        return (result.stdout + result.stderr).decode(errors="replace")
    with open(passed, "w", encoding="utf-8"):
        pass
    return None


def main():
    cache = sys.argv[1]
    os.makedirs(cache, exist_ok=True)
    with open("compile_commands.json", encoding="utf-8") as stream:
        entries = json.load(stream)
    with open(".clang-tidy", "rb") as stream:
        salt = stream.read()
    salt += subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, check=True).stdout
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for entry, output in zip(entries, pool.map(lambda item: check(item, cache, salt), entries)):
            if output is not None:
                failed += 1
                print(f"clang-tidy: {entry['file']}\n{output}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
