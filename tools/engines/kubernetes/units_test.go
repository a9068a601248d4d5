package main

import (
	"fmt"
	"reflect"
	"testing"
)

func some(owner string, from, to int) []string {
	var ids []string
	for i := from; i < to; i++ {
		ids = append(ids, unitID(owner, i))
	}
	return ids
}

func join(lists ...[]string) []string {
	var all []string
	for _, one := range lists {
		all = append(all, one...)
	}
	return all
}

func TestUnitsAreNamedWithinTheKubeletsLength(t *testing.T) {
	id := unitID("GPU-513c0da0-7e57-4de1-9c0a-000000000000", 191)
	if len(id) > 63 || ownerOf(id) != "GPU-513c0da0-7e57-4de1-9c0a-000000000000" {
		t.Error(id)
	}
	if ownerOf("nothing") != "" {
		t.Error("a text without a number has an owner")
	}
}

func TestPreferredUnits(t *testing.T) {
	for _, c := range []struct {
		name            string
		available, must []string
		size            int
		want            map[string]int
	}{
		{"the fullest GPU that has enough", join(some("a", 0, 8), some("b", 0, 5), some("c", 0, 3)), nil, 4, map[string]int{"b": 4}},
		{"exactly what one has", join(some("a", 0, 8), some("b", 0, 5), some("c", 0, 3)), nil, 3, map[string]int{"c": 3}},
		{"the GPU of the units that must be", join(some("a", 0, 8), some("b", 0, 5)), some("a", 2, 3), 4, map[string]int{"a": 4}},
		{"the emptiest first where none has enough", join(some("a", 0, 8), some("b", 0, 5)), nil, 10, map[string]int{"a": 8, "b": 2}},
		{"no more than there are", some("a", 0, 2), nil, 5, map[string]int{"a": 2}},
	} {
		ids := preferUnits(c.available, c.must, c.size)
		_, counts := countByOwner(ids)
		if !reflect.DeepEqual(counts, c.want) {
			t.Errorf("%s: %v, wanted %v", c.name, counts, c.want)
		}
		for _, id := range c.must {
			if countOf(ids, id) != 1 {
				t.Errorf("%s: %s is there %d times", c.name, id, countOf(ids, id))
			}
		}
	}
}

func countOf(ids []string, wanted string) int {
	count := 0
	for _, id := range ids {
		if id == wanted {
			count++
		}
	}
	return count
}

func TestLimits(t *testing.T) {
	if text := limitText(some("a", 3, 7)); text != "4GiB" {
		t.Error(text)
	}
	if text := limitText(join(some("b", 0, 1), some("a", 0, 2))); text != "a=2GiB,b=1GiB" {
		t.Error(text)
	}
}

func TestScopeNamesFollowFromTheUnits(t *testing.T) {
	one, same := scopeName([]string{"a_001", "a_002"}), scopeName([]string{"a_002", "a_001"})
	if one != same || one == scopeName([]string{"a_001"}) || one == scopeName([]string{"b_001", "b_002"}) {
		t.Error(one, same)
	}
}

func TestGroups(t *testing.T) {
	gpus := []gpu{{"GPU-a", 16 << 30, 0}, {"GPU-b", 8 << 30, 1}}
	counts := []int{16, 8}
	groups, err := readGroups([]string{"team=6@1", "x=16GiB"}, gpus, counts, nil)
	if err != nil || fmt.Sprint(counts) != "[0 2]" || groups[0].name() != "gpucache.dev/group-team" || groups[0].owner.uuid != "GPU-b" {
		t.Error(err, counts)
	}
	if s := groups[0].settings(nil); s["GPUCACHE_GROUP"] != "team" || s["GPUCACHE_GROUP_LIMIT"] != "6GiB" {
		t.Error(s)
	}
	for _, bad := range [][]string{{"team"}, {"team=0"}, {"Team=1"}, {"team=1@2"}, {"team=9@1"}, {"team=-1"}, {"a/b=1"}, {"t=1", "t=1"}, {"t=10", "u=7"}, {"team=1MiB"}} {
		if _, err := readGroups(bad, gpus, []int{16, 8}, nil); err == nil {
			t.Error(bad, "is accepted")
		}
	}
}
