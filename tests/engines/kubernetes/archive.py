#!/usr/bin/env python3
"""Writes the folder ROOT as an image that `ctr images import` reads (docker-archive).

usage: archive.py ROOT NAME FILE [NAME=VALUE...] -- COMMAND...
"""
import hashlib
import io
import json
import os
import sys
import tarfile


def add(archive, name, content):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def main():
    split = sys.argv.index("--")
    root, name, path, *variables = sys.argv[1:split]
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for entry in sorted(os.listdir(root)):
            archive.add(os.path.join(root, entry), arcname=entry)
    content = layer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    config = json.dumps({
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine], "os": "linux",
        "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *variables], "Entrypoint": sys.argv[split + 1:]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    with tarfile.open(path, mode="w") as archive:
        add(archive, f"{digest}/layer.tar", content)
        add(archive, config_name, config)
        add(archive, "manifest.json", json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]).encode())


main()
