// gpucache-device-plugin: device memory as a resource of Kubernetes. See README.md.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The project's version, set by the build.
var version = "unknown"

type list []string

func (l *list) String() string { return strings.Join(*l, " ") }
func (l *list) Set(text string) error {
	*l = append(*l, text)
	return nil
}

type settings struct {
	kubelet, pods, node, library, source string
	groups                               list
	spread, nodes                        bool
	grace                                time.Duration
}

func readSettings() settings {
	var s settings
	flag.StringVar(&s.kubelet, "kubelet", "/var/lib/kubelet/device-plugins", "the kubelet's `folder` for device plugins")
	flag.StringVar(&s.pods, "pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock", "the kubelet's `socket` that lists the pods' devices")
	flag.StringVar(&s.node, "node", "/run/gpucache", "the node's `folder` for ledgers; the same path on the host")
	flag.StringVar(&s.library, "library", "/var/lib/gpucache", "the node's `folder` that containers mount the library from; the same path on the host")
	flag.StringVar(&s.source, "source", "/usr/lib/x86_64-linux-gnu", "the `folder` that has libgpucache.so, to be copied to --library")
	flag.Var(&s.groups, "group", "`NAME=GIB[@GPU]`: a group of pods with one limit, taken from that GPU (0); may be repeated")
	flag.BoolVar(&s.spread, "spread", false, "a container may get parts of several GPUs, each with its own limit; else it is refused")
	flag.BoolVar(&s.nodes, "device-nodes", false, "pass /dev/nvidia*, for runtimes that do not read NVIDIA_VISIBLE_DEVICES")
	flag.DurationVar(&s.grace, "grace", time.Minute, "the `time` after which the scope of a pod that ended is removed")
	isAsked := flag.Bool("version", false, "print the version")
	flag.Parse()
	if *isAsked {
		fmt.Println("gpucache-device-plugin", version)
		os.Exit(0)
	}
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "gpucache-device-plugin: %s: only options are accepted; see --help\n", flag.Arg(0))
		os.Exit(2)
	}
	for _, path := range []string{s.node, s.library, s.kubelet} {
		if !filepath.IsAbs(path) {
			fmt.Fprintf(os.Stderr, "gpucache-device-plugin: %s: an absolute path is accepted\n", path)
			os.Exit(2)
		}
	}
	return s
}

// prepare builds the node and its resources; the groups' units are not the memory's.
func prepare(s settings, gpus []gpu) (*node, []resource, error) {
	if len(gpus) == 0 {
		return nil, nil, fmt.Errorf("NVML lists no device")
	}
	installed, err := installLibrary(s.source, s.library)
	if err != nil {
		return nil, nil, fmt.Errorf("the library: %v", err)
	}
	places, err := newScopes(s.node)
	if err != nil {
		return nil, nil, err
	}
	counts := make([]int, len(gpus))
	minors := map[string]uint{}
	for i, one := range gpus {
		counts[i] = int(one.bytes / unitBytes)
		minors[one.uuid] = one.minor
	}
	groups, err := readGroups(s.groups, gpus, counts, places)
	if err != nil {
		return nil, nil, err
	}
	resources := []resource{&memory{gpus, counts, places, s.spread}}
	for _, one := range groups {
		resources = append(resources, one)
	}
	return &node{library: installed, scopes: places, minors: minors, nodes: s.nodes, changed: make(chan struct{})}, resources, nil
}

func main() {
	log.SetFlags(log.LstdFlags | log.LUTC)
	s := readSettings()
	gpus, err := listGPUs()
	if err != nil {
		log.Fatal(err)
	}
	shared, resources, err := prepare(s, gpus)
	if err != nil {
		log.Fatal(err)
	}
	shared.examine(listGPUs)
	go shared.watch(listGPUs)
	go (&keeper{s.pods, shared.scopes, s.grace}).run()
	for _, one := range resources {
		go (&plugin{shared, one, s.kubelet}).run()
	}
	// The sockets go with the process; the kubelet then counts the units as unhealthy until it is back.
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGTERM, syscall.SIGINT)
	<-ending
	for _, one := range resources {
		os.Remove(filepath.Join(s.kubelet, (&plugin{shared, one, s.kubelet}).socket()))
	}
}
