// Units: one GiB of one GPU each, named UUID_NUMBER. Kubernetes counts them; the plugin chooses which.
package main

import (
	"fmt"
	"sort"
	"strings"
)

const unitBytes = 1 << 30

// unitID names the number-th unit of a GPU; at most 63 characters are allowed.
func unitID(owner string, number int) string {
	return fmt.Sprintf("%s_%03d", owner, number)
}

// ownerOf is the GPU's UUID, or the group's name, of a unit.
func ownerOf(id string) string {
	if i := strings.LastIndexByte(id, '_'); i > 0 {
		return id[:i]
	}
	return ""
}

// countByOwner counts units by GPU; the names are sorted.
func countByOwner(ids []string) ([]string, map[string]int) {
	counts := map[string]int{}
	for _, id := range ids {
		counts[ownerOf(id)]++
	}
	owners := make([]string, 0, len(counts))
	for owner := range counts {
		owners = append(owners, owner)
	}
	sort.Strings(owners)
	return owners, counts
}

// preferUnits chooses `size` of the available units, `must` among them: best fit, that is all of the GPU with the fewest
// units left that has enough. If no GPU has enough it takes those of the emptiest GPUs first.
func preferUnits(available, must []string, size int) []string {
	chosen := append([]string(nil), must...)
	taken := map[string]bool{}
	for _, id := range must {
		taken[id] = true
	}
	free := map[string][]string{}
	for _, id := range available {
		if !taken[id] {
			free[ownerOf(id)] = append(free[ownerOf(id)], id)
		}
	}
	owners := make([]string, 0, len(free))
	for owner := range free {
		sort.Strings(free[owner])
		owners = append(owners, owner)
	}
	// The GPU of the units that must be taken comes first.
	preferred := ""
	if len(must) > 0 {
		preferred = ownerOf(must[0])
	}
	wanted := size - len(chosen)
	sort.Slice(owners, func(i, j int) bool {
		a, b := owners[i], owners[j]
		if (a == preferred) != (b == preferred) {
			return a == preferred
		}
		fitsA, fitsB := len(free[a]) >= wanted, len(free[b]) >= wanted
		if fitsA != fitsB {
			return fitsA
		}
		if len(free[a]) != len(free[b]) {
			return (len(free[a]) < len(free[b])) == fitsA
		}
		return a < b
	})
	for _, owner := range owners {
		for _, id := range free[owner] {
			if len(chosen) == size {
				return chosen
			}
			chosen = append(chosen, id)
		}
	}
	return chosen
}

// limitText is the value of GPUCACHE_GROUP_LIMIT for units: a size, or one for each of several GPUs.
func limitText(ids []string) string {
	owners, counts := countByOwner(ids)
	if len(owners) == 1 {
		return fmt.Sprintf("%dGiB", counts[owners[0]])
	}
	parts := make([]string, 0, len(owners))
	for _, owner := range owners {
		parts = append(parts, fmt.Sprintf("%s=%dGiB", owner, counts[owner]))
	}
	return strings.Join(parts, ",")
}
