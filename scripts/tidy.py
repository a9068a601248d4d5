#!/usr/bin/env python3
"""Runs clang-tidy over compile_commands.json, a file on each processor.

usage: tidy.py CACHE_FOLDER [SHARE]
A file that passed is recorded by a hash of its preprocessed text, the checks and the tool's version, so that only
changed files are checked again.

The deep search of clang's static analyser takes nine tenths of the time. With SHARE it is for the files that the last
COMMITS commits changed, and for one SHAREth of the others, which the commit's hash chooses. The rest are searched in the
analyser's mode `shallow`, which follows fewer paths; it also takes some paths for possible that are not, so that a
file with a finding is searched deeply. Every other check is of all files.
"""
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys

COMMITS = 50
SHALLOW = [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", "mode=shallow")]


def deep_files(files, share):
    """Those with the deep search; all, where git does not know the commit."""
    if share <= 1:
        return set(files)
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
        changed = subprocess.run(["git", "log", f"-{COMMITS}", "--name-only", "--format="], check=True, capture_output=True,
                                 text=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return set(files)
    return set(sorted(files)[int(commit, 16) % share::share]) | set(changed)


def check(entry, cache, salt, is_deep):
    """None if the file is clean, else what clang-tidy printed."""
    preprocessed = subprocess.run([*entry["arguments"][:-2], "-E", entry["file"]], cwd=entry["directory"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if preprocessed.returncode != 0:
        return preprocessed.stderr.decode(errors="replace")
    with open(os.path.join(entry["directory"], entry["file"]), "rb") as stream:
        digest = hashlib.sha256(salt + preprocessed.stdout + stream.read()).hexdigest()
    passed = os.path.join(cache, digest)
    if os.path.exists(passed) or not is_deep and os.path.exists(passed + ".shallow"):
        return None
    depth = [] if is_deep else SHALLOW
    result = subprocess.run(["clang-tidy", "--quiet", *depth, "-p", entry["directory"], entry["file"]], cwd=entry["directory"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if result.returncode != 0 and not is_deep:
        return check(entry, cache, salt, True)
    if result.returncode != 0:
        return (result.stdout + result.stderr).decode(errors="replace")
    with open(passed if is_deep else passed + ".shallow", "w", encoding="utf-8"):
        pass
    return None


def main():
    cache = sys.argv[1]
    share = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    os.makedirs(cache, exist_ok=True)
    with open("compile_commands.json", encoding="utf-8") as stream:
        entries = json.load(stream)
    with open(".clang-tidy", "rb") as stream:
        salt = stream.read()
    salt += subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, check=True).stdout
    deep = deep_files([entry["file"] for entry in entries], share)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        outputs = pool.map(lambda item: check(item, cache, salt, item["file"] in deep), entries)
        for entry, output in zip(entries, outputs):
            if output is not None:
                failed += 1
                print(f"clang-tidy: {entry['file']}\n{output}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
