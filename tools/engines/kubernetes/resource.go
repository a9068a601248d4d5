// The two kinds of resources: gpucache.dev/memory-gib, GiB of the GPUs, one container each; and gpucache.dev/group-NAME,
// places in a group, which pods of the node share with one limit.
package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"gpucache.dev/kubernetes/deviceplugin"
)

const (
	vendor         = "gpucache.dev/"
	memoryResource = vendor + "memory-gib"
	groupMembers   = 100
)

// A resource has units and knows what a container with some of them gets.
type resource interface {
	name() string
	// units lists the units and whether their GPU answers; the order does not change.
	units(present map[string]bool) []*deviceplugin.Device
	prefer(available, must []string, size int) []string
	// scope makes the scope of these units; isNew: for another container than before.
	scope(ids []string, isNew bool) (string, error)
	settings(ids []string) map[string]string
	// gpus lists the UUIDs of the units' GPUs.
	gpus(ids []string) []string
}

// limited is the environment of a limit. The mode and the rest prevail over the image's variables and its /etc/gpucache.conf.
func limited(group, limit string) map[string]string {
	return map[string]string{"GPUCACHE_GROUP": group, "GPUCACHE_GROUP_LIMIT": limit, "GPUCACHE_MODE": "cache",
		"GPUCACHE_LEDGER_REQUIRED": "1",
		"CUDA_DISABLE_CONTROL":     "false", "GPUCACHE_NODE": filepath.Dir(insideLedgers)}
}

func newDevice(id string, isHealthy bool) *deviceplugin.Device {
	health := "Unhealthy"
	if isHealthy {
		health = "Healthy"
	}
	return &deviceplugin.Device{ID: id, Health: health}
}

// memory is what the groups left of each GPU.
type memory struct {
	owners []gpu
	counts []int
	scopes *scopes
	spread bool
}

func (m *memory) name() string { return memoryResource }

func (m *memory) units(present map[string]bool) []*deviceplugin.Device {
	var list []*deviceplugin.Device
	for i, owner := range m.owners {
		for number := 0; number < m.counts[i]; number++ {
			list = append(list, newDevice(unitID(owner.uuid, number), present[owner.uuid]))
		}
	}
	return list
}

func (m *memory) prefer(available, must []string, size int) []string {
	return preferUnits(available, must, size)
}

func (m *memory) gpus(ids []string) []string {
	owners, _ := countByOwner(ids)
	return owners
}

func (m *memory) scope(ids []string, isNew bool) (string, error) {
	if owners, _ := countByOwner(ids); len(owners) > 1 && !m.spread {
		return "", fmt.Errorf("%d GiB would be parts of several GPUs (%s): no GPU of the node has that many left; --spread allows it",
			len(ids), limitText(ids))
	}
	name := scopeName(ids)
	if isNew {
		return name, m.scopes.renew(name)
	}
	return name, m.scopes.make(name)
}

func (m *memory) settings(ids []string) map[string]string {
	return limited("container", limitText(ids))
}

// group is one group: its limit on one GPU is taken from that GPU's units.
type group struct {
	title  string
	gib    int
	owner  gpu
	scopes *scopes
}

func (g *group) name() string { return vendor + "group-" + g.title }

func (g *group) units(present map[string]bool) []*deviceplugin.Device {
	var list []*deviceplugin.Device
	for number := 0; number < groupMembers; number++ {
		list = append(list, newDevice(unitID(g.title, number), present[g.owner.uuid]))
	}
	return list
}

func (g *group) prefer(available, must []string, size int) []string {
	return preferUnits(available, must, size)
}

func (g *group) gpus([]string) []string { return []string{g.owner.uuid} }

func (g *group) scope([]string, bool) (string, error) {
	name := groupPrefix + g.title
	return name, g.scopes.make(name)
}

func (g *group) settings([]string) map[string]string {
	return limited(g.title, fmt.Sprintf("%dGiB", g.gib))
}

var groupText = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?)=([1-9][0-9]{0,5})(GiB)?(@([0-9]{1,3}))?$`)

// readGroups reads NAME=GIB[@GPU]; GPU is its number by NVML. The units of a group are taken from counts.
func readGroups(texts []string, gpus []gpu, counts []int, s *scopes) ([]*group, error) {
	var groups []*group
	seen := map[string]bool{}
	for _, text := range texts {
		parts := groupText.FindStringSubmatch(text)
		if parts == nil || seen[parts[1]] {
			return nil, fmt.Errorf("--group %s is not valid; accepted: NAME=GIB or NAME=GIB@GPU, each name once: small letters, digits and '-', "+
				"at most 30; GPU is its number", text)
		}
		seen[parts[1]] = true
		gib, _ := strconv.Atoi(parts[3])
		index, _ := strconv.Atoi(parts[6]) // "": 0
		if index >= len(gpus) {
			return nil, fmt.Errorf("--group %s: the node has %d GPUs", text, len(gpus))
		}
		if gib > counts[index] {
			return nil, fmt.Errorf("--group %s: GPU %d has %d GiB left", text, index, counts[index])
		}
		counts[index] -= gib
		groups = append(groups, &group{parts[1], gib, gpus[index], s})
	}
	return groups, nil
}

// readOnly is a mount of the node's file.
func readOnly(host, inside string) *deviceplugin.Mount {
	return &deviceplugin.Mount{HostPath: host, ContainerPath: inside, ReadOnly: true}
}

// edits is the answer for one container.
func edits(r resource, l *library, s *scopes, nodes bool, minors map[string]uint, ids []string, scope string) *deviceplugin.ContainerAllocateResponse {
	answer := &deviceplugin.ContainerAllocateResponse{Envs: r.settings(ids)}
	answer.Envs["NVIDIA_VISIBLE_DEVICES"] = strings.Join(r.gpus(ids), ",")
	answer.Mounts = []*deviceplugin.Mount{
		readOnly(filepath.Join(l.folder, libraryName), insideFolder+"/"+libraryName),
		readOnly(filepath.Join(l.folder, preloadName), insidePreload),
		{HostPath: s.path(scope), ContainerPath: insideLedgers},
	}
	if l.hasModule {
		answer.Mounts = append(answer.Mounts, readOnly(filepath.Join(l.folder, moduleName), insideFolder+"/"+moduleName))
	}
	if !nodes {
		return answer
	}
	paths := []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
	for _, uuid := range r.gpus(ids) {
		paths = append(paths, fmt.Sprintf("/dev/nvidia%d", minors[uuid]))
	}
	for _, path := range paths {
		answer.Devices = append(answer.Devices, &deviceplugin.DeviceSpec{HostPath: path, ContainerPath: path, Permissions: "rw"})
	}
	return answer
}
