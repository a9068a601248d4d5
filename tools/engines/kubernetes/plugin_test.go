package main

import (
	"context"
	"io/ioutil"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gpucache.dev/kubernetes/deviceplugin"
	"gpucache.dev/kubernetes/podresources"

	"google.golang.org/grpc"
)

// A kubelet that takes registrations and lists pods.
type kubelet struct {
	folder     string
	server     *grpc.Server
	registered chan *deviceplugin.RegisterRequest
	mutex      sync.Mutex
	pods       []*podresources.PodResources
}

func (k *kubelet) Register(_ context.Context, request *deviceplugin.RegisterRequest) (*deviceplugin.Empty, error) {
	k.registered <- request
	return &deviceplugin.Empty{}, nil
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return &podresources.ListPodResourcesResponse{PodResources: k.pods}, nil
}

// start removes all sockets of the folder, as a kubelet does, and serves.
func (k *kubelet) start(t *testing.T) {
	sockets, _ := filepath.Glob(filepath.Join(k.folder, "*.sock"))
	for _, path := range sockets {
		os.Remove(path)
	}
	listener, err := net.Listen("unix", filepath.Join(k.folder, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	k.server = grpc.NewServer()
	deviceplugin.RegisterRegistrationServer(k.server, k)
	podresources.RegisterPodResourcesListerServer(k.server, k)
	go k.server.Serve(listener)
}

func (k *kubelet) wait(t *testing.T) *deviceplugin.RegisterRequest {
	select {
	case request := <-k.registered:
		return request
	case <-time.After(20 * time.Second):
		t.Fatal("no registration")
		return nil
	}
}

type fixture struct {
	kubelet *kubelet
	node    *node
	plugin  *plugin
	folder  string
	gpus    func() ([]gpu, error)
}

var twoGPUs = []gpu{{"GPU-a", 4 << 30, 0}, {"GPU-b", 2<<30 + 1<<29, 1}}

func newFixture(t *testing.T) *fixture {
	folder, err := ioutil.TempDir("", "plugin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	for _, name := range []string{"kubelet", "source", "run"} {
		os.Mkdir(filepath.Join(folder, name), 0755)
	}
	write(t, filepath.Join(folder, "source", libraryName), "\x7fELF... GPUCACHE_GROUP_LIMIT")
	shared, resources, err := prepare(settings{
		kubelet: filepath.Join(folder, "kubelet"), node: filepath.Join(folder, "run"), library: filepath.Join(folder, "library"),
		source: filepath.Join(folder, "source"),
	}, twoGPUs)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{kubelet: &kubelet{folder: filepath.Join(folder, "kubelet"), registered: make(chan *deviceplugin.RegisterRequest, 8)},
		node: shared, plugin: &plugin{shared, resources[0], filepath.Join(folder, "kubelet")}, folder: folder,
		gpus: func() ([]gpu, error) { return twoGPUs, nil }}
	shared.examine(f.gpus)
	return f
}

func write(t *testing.T, path, text string) {
	if err := ioutil.WriteFile(path, []byte(text), 0644); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) allocate(ids ...string) (*deviceplugin.ContainerAllocateResponse, error) {
	answer, err := f.plugin.Allocate(context.Background(),
		&deviceplugin.AllocateRequest{ContainerRequests: []*deviceplugin.ContainerAllocateRequest{{DevicesIDs: ids}}})
	if err != nil {
		return nil, err
	}
	return answer.ContainerResponses[0], nil
}

func (f *fixture) healthy() int {
	present, _ := f.node.state()
	count := 0
	for _, device := range f.plugin.resource.units(present) {
		if device.Health == "Healthy" {
			count++
		}
	}
	return count
}

func TestRegistersAgainWithAKubeletThatStartsAgain(t *testing.T) {
	f := newFixture(t)
	go f.plugin.run()
	f.kubelet.start(t)
	request := f.kubelet.wait(t)
	if request.ResourceName != "gpucache.dev/memory-gib" || request.Version != "v1beta1" || !request.Options.PreStartRequired {
		t.Error(request)
	}
	f.kubelet.server.GracefulStop()
	f.kubelet.start(t)
	f.kubelet.wait(t)
	connection, err := dialUnix(filepath.Join(f.kubelet.folder, request.Endpoint), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	stream, err := deviceplugin.NewDevicePluginClient(connection).ListAndWatch(context.Background(), &deviceplugin.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Healthy", "Unhealthy"} {
		list, err := stream.Recv()
		if err != nil || len(list.Devices) != 6 || list.Devices[5].Health != want {
			t.Fatal(err, list)
		}
		os.Remove(filepath.Join(f.folder, "library", libraryName))
		f.node.examine(f.gpus)
	}
}

func TestAllocation(t *testing.T) {
	f := newFixture(t)
	answer, err := f.allocate("GPU-a_001", "GPU-a_003")
	if err != nil {
		t.Fatal(err)
	}
	envs := answer.Envs
	if envs["GPUCACHE_MODE"] != "cache" || envs["GPUCACHE_LEDGER_REQUIRED"] != "1" || envs["CUDA_DISABLE_CONTROL"] != "false" || envs["GPUCACHE_NODE"] != "/run/gpucache" {
		t.Error(envs)
	}
	if envs["GPUCACHE_GROUP_LIMIT"] != "2GiB" || envs["GPUCACHE_GROUP"] != "container" || envs["NVIDIA_VISIBLE_DEVICES"] != "GPU-a" {
		t.Error(envs)
	}
	mounts := map[string]*deviceplugin.Mount{}
	for _, mount := range answer.Mounts {
		mounts[mount.ContainerPath] = mount
	}
	if !mounts[insidePreload].ReadOnly || !mounts["/usr/lib/gpucache/libgpucache.so"].ReadOnly || mounts[insideLedgers].ReadOnly {
		t.Error(mounts)
	}
	facts, err := os.Stat(mounts[insideLedgers].HostPath)
	if err != nil || facts.Mode() != os.ModeDir|os.ModeSticky|0777 {
		t.Error(err, facts.Mode())
	}
	write(t, filepath.Join(mounts[insideLedgers].HostPath, "left"), "")
	if again, err := f.allocate("GPU-a_003", "GPU-a_001"); err != nil || again.Mounts[2].HostPath != mounts[insideLedgers].HostPath {
		t.Error(err, "the same units have another scope")
	}
	if _, err := os.Stat(filepath.Join(mounts[insideLedgers].HostPath, "left")); !os.IsNotExist(err) {
		t.Error("the scope has what an earlier container left")
	}
}

func TestRefusals(t *testing.T) {
	f := newFixture(t)
	for _, ids := range [][]string{{}, {"GPU-a_004"}, {"GPU-b_002"}, {"GPU-c_000"}, {"../x"}, {"GPU-a_000", "GPU-b_000"}} {
		if _, err := f.allocate(ids...); err == nil {
			t.Error(ids, "is allocated")
		}
	}
	f.plugin.resource.(*memory).spread = true
	answer, err := f.allocate("GPU-b_000", "GPU-a_000", "GPU-a_001")
	if err != nil || answer.Envs["GPUCACHE_GROUP_LIMIT"] != "GPU-a=2GiB,GPU-b=1GiB" || answer.Envs["NVIDIA_VISIBLE_DEVICES"] != "GPU-a,GPU-b" {
		t.Error(err, answer)
	}
}

func TestWithoutTheLibraryThereIsNoDevice(t *testing.T) {
	for _, spoil := range []func(folder string){
		func(folder string) { os.Remove(filepath.Join(folder, libraryName)) },
		func(folder string) { write(t, filepath.Join(folder, libraryName), "\x7fELF, another") },
		func(folder string) { os.Remove(filepath.Join(folder, preloadName)) },
		func(folder string) { write(t, filepath.Join(folder, preloadName), "/usr/lib/other.so\n") },
	} {
		f := newFixture(t)
		if f.healthy() != 6 {
			t.Error(f.healthy(), "units are healthy")
		}
		spoil(filepath.Join(f.folder, "library"))
		f.node.examine(f.gpus)
		_, allocated := f.allocate("GPU-a_000")
		_, started := f.plugin.PreStartContainer(context.Background(), &deviceplugin.PreStartContainerRequest{DevicesIDs: []string{"GPU-a_000"}})
		if f.healthy() != 0 || allocated == nil || started == nil {
			t.Error(f.healthy(), allocated, started)
		}
	}
	if _, err := installLibrary("/etc", "/tmp"); err == nil {
		t.Error("a folder without the library is accepted")
	}
}

func TestAGPUThatIsGoneIsUnhealthy(t *testing.T) {
	f := newFixture(t)
	f.node.examine(func() ([]gpu, error) { return twoGPUs[:1], nil })
	if f.healthy() != 4 {
		t.Error(f.healthy())
	}
}

func TestAStartMakesTheScopeAgain(t *testing.T) {
	f := newFixture(t)
	answer, _ := f.allocate("GPU-a_000")
	os.RemoveAll(answer.Mounts[2].HostPath)
	if _, err := f.plugin.PreStartContainer(context.Background(), &deviceplugin.PreStartContainerRequest{DevicesIDs: []string{"GPU-a_000"}}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(answer.Mounts[2].HostPath); err != nil {
		t.Error(err)
	}
}

func TestTheNodesFolderIsRootsAlone(t *testing.T) {
	f := newFixture(t)
	os.Chmod(filepath.Join(f.folder, "run", "pods"), 0777)
	if _, err := newScopes(filepath.Join(f.folder, "run")); err == nil {
		t.Error("a folder that all may write to is accepted")
	}
}

func TestLabelsAndTheEndOfScopes(t *testing.T) {
	f := newFixture(t)
	f.kubelet.start(t)
	answer, _ := f.allocate("GPU-a_000")
	scope := answer.Mounts[2].HostPath
	k := &keeper{filepath.Join(f.kubelet.folder, kubeletSocket), f.node.scopes, time.Minute}
	f.kubelet.pods = []*podresources.PodResources{{Name: "one", Namespace: "space", Containers: []*podresources.ContainerResources{
		{Name: "main", Devices: []*podresources.ContainerDevices{{ResourceName: "nvidia.com/gpu", DeviceIds: []string{"x"}},
			{ResourceName: memoryResource, DeviceIds: []string{"GPU-a_000"}}}}}}}
	start := time.Now()
	if err := k.keep(start); err != nil {
		t.Fatal(err)
	}
	if text, _ := ioutil.ReadFile(scope + ".labels"); string(text) != "namespace=space\npod=one\ncontainer=main\n" {
		t.Error(string(text))
	}
	f.kubelet.pods = nil
	k.keep(start)
	k.keep(start.Add(30 * time.Second))
	if _, err := os.Stat(scope); err != nil {
		t.Error("the scope is gone before its time")
	}
	// A process that lives holds a lock in its ledger.
	os.Mkdir(filepath.Join(scope, "0"), 0700)
	ledger, _ := os.Create(filepath.Join(scope, "0", "ledger-4"))
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: 3, Len: 1}
	const setLock = 37 // F_OFD_SETLK
	if err := syscall.FcntlFlock(ledger.Fd(), setLock, &lock); err != nil {
		t.Fatal(err)
	}
	k.keep(start.Add(2 * time.Minute))
	if _, err := os.Stat(scope); err != nil {
		t.Error("the scope is gone while a process lives")
	}
	if _, err := f.allocate("GPU-a_000"); err == nil || !strings.Contains(err.Error(), "still use it") {
		t.Error("its units are allocated while a process lives:", err)
	}
	ledger.Close()
	k.keep(start.Add(3 * time.Minute))
	left, _ := filepath.Glob(scope + "*")
	if len(left) != 0 {
		t.Error(left)
	}
}

func TestNoLinkLeadsOutOfAScope(t *testing.T) {
	f := newFixture(t)
	answer, _ := f.allocate("GPU-a_000")
	scope, outside := answer.Mounts[2].HostPath, filepath.Join(f.folder, "outside")
	name := filepath.Base(scope)
	os.MkdirAll(outside, 0700)
	ledger, _ := os.Create(filepath.Join(outside, "ledger-4"))
	defer ledger.Close()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: 3, Len: 1}
	if err := syscall.FcntlFlock(ledger.Fd(), 37, &lock); err != nil { // F_OFD_SETLK
		t.Fatal(err)
	}
	os.Symlink(outside, filepath.Join(scope, "0"))
	os.Mkdir(filepath.Join(scope, "1"), 0700)
	os.Symlink(ledger.Name(), filepath.Join(scope, "1", "ledger-4"))
	if f.node.scopes.isUsed(name) {
		t.Error("a link is followed")
	}
	os.Link(ledger.Name(), filepath.Join(scope, "1", "ledger-5"))
	if !f.node.scopes.isUsed(name) {
		t.Error("a lock is not seen")
	}
}

func TestTheLibraryIsReadAgainWhenItChanges(t *testing.T) {
	f := newFixture(t)
	path := filepath.Join(f.folder, "library", libraryName)
	if f.node.library.good != identity(path) {
		t.Error("the library is read each time")
	}
	facts, _ := os.Stat(path)
	content, _ := ioutil.ReadFile(path)
	write(t, path, string(content[:len(content)-1])+"X")
	os.Chtimes(path, facts.ModTime(), facts.ModTime())
	if f.node.library.check() == nil {
		t.Error("a changed library of the same size and time passes")
	}
	write(t, path, string(content))
	if err := f.node.library.check(); err != nil {
		t.Error(err)
	}
}

func TestAnAllocationBeginsTheTimeOfAScopeAnew(t *testing.T) {
	f := newFixture(t)
	k := &keeper{"", f.node.scopes, time.Minute}
	answer, _ := f.allocate("GPU-a_000")
	start := time.Now()
	k.prune(nil, start)
	f.allocate("GPU-a_000")
	k.prune(nil, start.Add(2*time.Minute))
	if _, err := os.Stat(answer.Mounts[2].HostPath); err != nil {
		t.Error("the scope of a new container is removed:", err)
	}
	k.prune(nil, start.Add(4*time.Minute))
	if _, err := os.Stat(answer.Mounts[2].HostPath); !os.IsNotExist(err) {
		t.Error("the scope stays")
	}
}
