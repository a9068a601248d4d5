// One server for each resource: the kubelet's questions, and the registration, which is made anew whenever the kubelet
// starts again.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"gpucache.dev/kubernetes/deviceplugin"

	"google.golang.org/grpc"
)

const (
	apiVersion      = "v1beta1"
	kubeletSocket   = "kubelet.sock"
	watchInterval   = time.Second // of the kubelet's sockets
	examineInterval = 10 * time.Second
	registerTimeout = 10 * time.Second
)

// A node is what all resources share.
type node struct {
	library *library
	scopes  *scopes
	minors  map[string]uint
	nodes   bool // device nodes are passed

	mutex   sync.Mutex
	present map[string]bool // GPUs that answer, by UUID; none if the library is missing
	fault   string          // why none is there
	changed chan struct{}   // closed, and replaced, at each change
}

// watch examines library and GPUs; each change goes to the kubelet.
func (n *node) watch(list func() ([]gpu, error)) {
	for {
		n.examine(list)
		time.Sleep(examineInterval)
	}
}

func (n *node) examine(list func() ([]gpu, error)) {
	present := map[string]bool{}
	found, err := list()
	for _, one := range found {
		present[one.uuid] = true
	}
	if libraryErr := n.library.check(); libraryErr != nil {
		present, err = map[string]bool{}, libraryErr
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if fault := errorText(err); fault != n.fault {
		n.fault = fault
		if err != nil {
			log.Printf("devices are unhealthy: %v", err)
		} else {
			log.Printf("the devices are healthy again")
		}
	}
	if fmt.Sprint(present) != fmt.Sprint(n.present) {
		n.present = present
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

func (n *node) state() (map[string]bool, chan struct{}) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.present, n.changed
}

// A plugin serves one resource.
type plugin struct {
	node     *node
	resource resource
	folder   string // the kubelet's
}

func (p *plugin) socket() string {
	return "gpucache-" + strings.TrimPrefix(p.resource.name(), vendor) + ".sock"
}

func (p *plugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

func (p *plugin) ListAndWatch(_ *deviceplugin.Empty, stream deviceplugin.DevicePlugin_ListAndWatchServer) error {
	for {
		present, changed := p.node.state()
		if err := stream.Send(&deviceplugin.ListAndWatchResponse{Devices: p.resource.units(present)}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *plugin) GetPreferredAllocation(_ context.Context, request *deviceplugin.PreferredAllocationRequest) (*deviceplugin.PreferredAllocationResponse, error) {
	answer := &deviceplugin.PreferredAllocationResponse{}
	for _, one := range request.ContainerRequests {
		ids := p.resource.prefer(one.AvailableDeviceIDs, one.MustIncludeDeviceIDs, int(one.AllocationSize))
		answer.ContainerResponses = append(answer.ContainerResponses, &deviceplugin.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return answer, nil
}

// checkUnits refuses units that this plugin does not have.
func (p *plugin) checkUnits(ids []string) error {
	known := map[string]bool{}
	for _, device := range p.resource.units(nil) {
		known[device.ID] = true
	}
	if len(ids) == 0 {
		return fmt.Errorf("%s: no unit is asked for", p.resource.name())
	}
	for _, id := range ids {
		if !known[id] {
			return fmt.Errorf("%s: there is no unit %q", p.resource.name(), id)
		}
	}
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	answer := &deviceplugin.AllocateResponse{}
	if err := p.node.library.check(); err != nil {
		return nil, err
	}
	for _, one := range request.ContainerRequests {
		if err := p.checkUnits(one.DevicesIDs); err != nil {
			return nil, err
		}
		scope, err := p.resource.scope(one.DevicesIDs, true)
		if err != nil {
			return nil, err
		}
		answer.ContainerResponses = append(answer.ContainerResponses,
			edits(p.resource, p.node.library, p.node.scopes, p.node.nodes, p.node.minors, one.DevicesIDs, scope))
	}
	return answer, nil
}

// PreStartContainer is called before each start, also of a container that starts again: its scope may be gone since, with
// the node's /run.
func (p *plugin) PreStartContainer(_ context.Context, request *deviceplugin.PreStartContainerRequest) (*deviceplugin.PreStartContainerResponse, error) {
	if err := p.node.library.check(); err != nil {
		return nil, err
	}
	if err := p.checkUnits(request.DevicesIDs); err != nil {
		return nil, err
	}
	if _, err := p.resource.scope(request.DevicesIDs, false); err != nil {
		return nil, err
	}
	return &deviceplugin.PreStartContainerResponse{}, nil
}

// identity tells one socket from another of the same name; "" if it is not there.
func identity(path string) string {
	facts, err := os.Stat(path)
	if err != nil {
		return ""
	}
	detail := facts.Sys().(*syscall.Stat_t)
	return fmt.Sprint(detail.Dev, " ", detail.Ino, " ", detail.Ctim.Sec, " ", detail.Ctim.Nsec)
}

// run serves until the process ends.
func (p *plugin) run() {
	for {
		if err := p.serve(); err != nil {
			log.Printf("%s: %v", p.resource.name(), err)
		}
		time.Sleep(watchInterval)
	}
}

// serve listens and registers; returns when the kubelet's socket or the plugin's own was replaced. The kubelet removes all
// plugins' sockets when it starts.
func (p *plugin) serve() error {
	kubelet, own := filepath.Join(p.folder, kubeletSocket), filepath.Join(p.folder, p.socket())
	started := identity(kubelet)
	if started == "" {
		return nil
	}
	if err := os.Remove(own); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	defer server.Stop()
	mine := identity(own)
	if err := p.register(kubelet); err != nil {
		return fmt.Errorf("the kubelet does not register the plugin: %v", err)
	}
	log.Printf("%s: registered with the kubelet, %d units", p.resource.name(), len(p.resource.units(nil)))
	for identity(kubelet) == started && identity(own) == mine {
		time.Sleep(watchInterval)
	}
	log.Printf("%s: the kubelet started again", p.resource.name())
	return nil
}

func (p *plugin) register(kubelet string) error {
	connection, err := dialUnix(kubelet, registerTimeout)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), registerTimeout)
	defer cancel()
	_, err = deviceplugin.NewRegistrationClient(connection).Register(ctx, &deviceplugin.RegisterRequest{
		Version: apiVersion, Endpoint: p.socket(), ResourceName: p.resource.name(),
		Options: &deviceplugin.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true},
	})
	return err
}
