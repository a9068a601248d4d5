// The library on the node: containers mount it from one folder of the host. A container must never run without its limit, so
// each promise to the kubelet checks the files first.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/ioutil"
	"os"
	"path/filepath"
	"sync"
)

// The library's place in containers, as in `gpucache cdi`.
const (
	insideFolder  = "/usr/lib/gpucache"
	insidePreload = "/etc/ld.so.preload"
	insideLedgers = "/run/gpucache/users"
	libraryName   = "libgpucache.so"
	moduleName    = "libgpucache-model.so"
	preloadName   = "ld.so.preload"
)

const preloadText = insideFolder + "/" + libraryName + "\n"

// A library is what install put into the folder on the node.
type library struct {
	folder    string
	sum       [sha256.Size]byte
	hasModule bool

	mutex sync.Mutex
	good  string // the identity of the file that had the sum when it was read
}

func isLibrary(content []byte) bool {
	return bytes.HasPrefix(content, []byte("\x7fELF")) && bytes.Contains(content, []byte("GPUCACHE_GROUP_LIMIT"))
}

// writeFile replaces a file by a new one: processes that mapped the old one keep it.
func writeFile(path string, content []byte, mode os.FileMode) error {
	temporary, err := ioutil.TempFile(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	if err == nil {
		err = temporary.Chmod(mode)
	}
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// installLibrary copies the library and, if it is there, its module from the folder `source` to the node's `folder`, where
// they differ.
func installLibrary(source, folder string) (*library, error) {
	content, err := ioutil.ReadFile(filepath.Join(source, libraryName))
	if err != nil {
		return nil, err
	}
	if !isLibrary(content) {
		return nil, fmt.Errorf("%s: is no libgpucache", filepath.Join(source, libraryName))
	}
	if err := os.MkdirAll(folder, 0755); err != nil {
		return nil, err
	}
	installed := &library{folder: folder, sum: sha256.Sum256(content)}
	module, err := ioutil.ReadFile(filepath.Join(source, moduleName))
	if os.IsNotExist(err) {
		module, err = ioutil.ReadFile(filepath.Join(source, "gpucache", moduleName))
	}
	installed.hasModule = err == nil
	files := map[string][]byte{libraryName: content, preloadName: []byte(preloadText)}
	if installed.hasModule {
		files[moduleName] = module
	}
	for name, wanted := range files {
		path := filepath.Join(folder, name)
		if there, err := ioutil.ReadFile(path); err == nil && bytes.Equal(there, wanted) {
			continue
		}
		if err := writeFile(path, wanted, 0644); err != nil {
			return nil, err
		}
	}
	return installed, installed.check()
}

// checkSum reads the library only if it changed: each change of content changes the time ctime, which no program can set.
func (l *library) checkSum(path string) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	before := identity(path)
	if before != "" && before == l.good {
		return nil
	}
	l.good = ""
	content, err := ioutil.ReadFile(path)
	if err != nil {
		return err
	}
	if sha256.Sum256(content) != l.sum {
		return fmt.Errorf("%s: is another file than the one that was installed", path)
	}
	if identity(path) == before {
		l.good = before
	}
	return nil
}

// check returns nil if containers that mount the folder's files get the library that was installed.
func (l *library) check() error {
	if err := l.checkSum(filepath.Join(l.folder, libraryName)); err != nil {
		return err
	}
	preload, err := ioutil.ReadFile(filepath.Join(l.folder, preloadName))
	if err != nil {
		return err
	}
	if string(preload) != preloadText {
		return fmt.Errorf("%s: is not %q", filepath.Join(l.folder, preloadName), preloadText)
	}
	return nil
}
