// Scopes: NODE/pods/NAME, a sticky folder that a container sees as /run/gpucache/users, and NODE/pods/NAME.labels beside it.
// The name follows from the units, each of which one container has at a time: so a scope is found again after a restart of
// the plugin, the kubelet or the node.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	scopePrefix = "kube-"
	groupPrefix = "kube-group-"
	ofdGetLock  = 36 // F_OFD_GETLK
)

// scopes is the node's folder for them.
type scopes struct {
	folder string

	mutex   sync.Mutex
	missing map[string]time.Time // scopes without a pod, and since when
}

// scopeName is the name of the scope of these units.
func scopeName(ids []string) string {
	sorted := append([]string(nil), ids...)
	sort.Strings(sorted)
	sum := sha256.Sum256([]byte(strings.Join(sorted, ",")))
	return scopePrefix + hex.EncodeToString(sum[:10])
}

// newScopes makes NODE and NODE/pods, which only root may write to.
func newScopes(node string) (*scopes, error) {
	folder := filepath.Join(node, "pods")
	for _, path := range []string{node, folder} {
		if err := os.Mkdir(path, 0755); err != nil && !os.IsExist(err) {
			return nil, err
		}
		facts, err := os.Lstat(path)
		if err != nil {
			return nil, err
		}
		if owner := facts.Sys().(*syscall.Stat_t).Uid; !facts.IsDir() || facts.Mode().Perm()&022 != 0 || int(owner) != os.Geteuid() {
			return nil, fmt.Errorf("%s: a folder of this user that no other can write to is accepted", path)
		}
	}
	return &scopes{folder: folder, missing: map[string]time.Time{}}, nil
}

func (s *scopes) path(name string) string { return filepath.Join(s.folder, name) }

// make makes a scope, if it is not there. The mask of the process does not apply to chmod.
func (s *scopes) make(name string) error {
	if err := os.Mkdir(s.path(name), 0700); err != nil && !os.IsExist(err) {
		return err
	}
	facts, err := os.Lstat(s.path(name))
	if err != nil {
		return err
	}
	if !facts.IsDir() {
		return fmt.Errorf("%s: is no folder", s.path(name))
	}
	return os.Chmod(s.path(name), os.ModeSticky|0777)
}

// renew makes a scope anew: what an earlier container left is removed, unless a process still uses it.
func (s *scopes) renew(name string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.isUsed(name) {
		return fmt.Errorf("%s: processes of another container still use it", s.path(name))
	}
	delete(s.missing, name)
	if err := s.remove(name); err != nil {
		return err
	}
	return s.make(name)
}

// isUsed: whether a process of a ledger in the scope lives. Each holds a lock in the file as long as it lives.
func (s *scopes) isUsed(name string) bool {
	scope, err := openInside(unix.AT_FDCWD, s.path(name), unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer scope.Close()
	users, _ := scope.Readdirnames(-1)
	for _, user := range users {
		folder, err := openInside(int(scope.Fd()), user, unix.O_DIRECTORY)
		if err != nil {
			continue
		}
		isUsed := hasLock(folder)
		folder.Close()
		if isUsed {
			return true
		}
	}
	return false
}

// openInside opens what has this name in the folder; no link is followed, since containers write there.
func openInside(folder int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func isRegular(folder *os.File, name string) bool {
	var facts unix.Stat_t
	err := unix.Fstatat(int(folder.Fd()), name, &facts, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && facts.Mode&unix.S_IFMT == unix.S_IFREG
}

// hasLock: whether a process holds a lock in a ledger of the folder.
func hasLock(folder *os.File) bool {
	names, _ := folder.Readdirnames(-1)
	for _, name := range names {
		if !strings.HasPrefix(name, "ledger-") || !isRegular(folder, name) {
			continue
		}
		ledger, err := openInside(int(folder.Fd()), name, 0)
		if err != nil {
			continue
		}
		lock := syscall.Flock_t{Type: syscall.F_WRLCK}
		err = syscall.FcntlFlock(ledger.Fd(), ofdGetLock, &lock)
		ledger.Close()
		if err == nil && lock.Type != syscall.F_UNLCK {
			return true
		}
	}
	return false
}

// remove removes a scope and its labels. RemoveAll follows no link.
func (s *scopes) remove(name string) error {
	if err := os.RemoveAll(s.path(name)); err != nil {
		return err
	}
	err := os.Remove(s.path(name) + ".labels")
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// list names the scopes of containers; groups' are not among them.
func (s *scopes) list() ([]string, error) {
	entries, err := ioutil.ReadDir(s.folder)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() && strings.HasPrefix(name, scopePrefix) && !strings.HasPrefix(name, groupPrefix) {
			names = append(names, name)
		}
	}
	return names, nil
}

// label writes the labels of a scope, if they changed.
func (s *scopes) label(name, namespace, pod, container string) error {
	text := fmt.Sprintf("namespace=%s\npod=%s\ncontainer=%s\n", namespace, pod, container)
	path := s.path(name) + ".labels"
	if there, err := ioutil.ReadFile(path); err == nil && string(there) == text {
		return nil
	}
	return writeFile(path, []byte(text), 0644)
}
