#!/bin/sh
# Generates the Go code of the two interfaces. By hand, after a change of a .proto file; the results are in the tree, so that
# a build needs neither protoc nor its plugin (Debian: protobuf-compiler, golang-goprotobuf-dev).
set -eu
cd "$(dirname "$0")"
protoc --go_out=plugins=grpc,paths=source_relative:. deviceplugin/deviceplugin.proto
protoc --go_out=plugins=grpc,paths=source_relative:. podresources/podresources.proto
