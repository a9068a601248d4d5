// The pods that have units, as the kubelet lists them: labels of their scopes, and the removal of scopes without a pod.
package main

import (
	"context"
	"log"
	"net"
	"time"

	"gpucache.dev/kubernetes/podresources"

	"google.golang.org/grpc"
)

const (
	podsInterval = 5 * time.Second
	podsTimeout  = 10 * time.Second
)

// dialUnix connects to a socket, which must answer within the time.
func dialUnix(path string, timeout time.Duration) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return grpc.DialContext(ctx, path, grpc.WithInsecure(), grpc.WithBlock(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", address)
		}))
}

// A keeper keeps the labels, and removes scopes that no pod has had for the time `grace`.
type keeper struct {
	socket string
	scopes *scopes
	grace  time.Duration
}

func (k *keeper) run() {
	said := ""
	for {
		err := k.keep(time.Now())
		if text := errorText(err); text != said {
			said = text
			if err != nil {
				log.Printf("the kubelet does not list the pods: %v; labels and the removal of scopes wait", err)
			}
		}
		time.Sleep(podsInterval)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (k *keeper) keep(now time.Time) error {
	connection, err := dialUnix(k.socket, podsTimeout)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), podsTimeout)
	defer cancel()
	list, err := podresources.NewPodResourcesListerClient(connection).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return err
	}
	return k.prune(k.label(list), now)
}

// label writes the labels of all pods with units, and returns their scopes.
func (k *keeper) label(list *podresources.ListPodResourcesResponse) map[string]bool {
	known := map[string]bool{}
	for _, pod := range list.PodResources {
		for _, container := range pod.Containers {
			// A later kubelet lists a resource in several parts, one for each NUMA node.
			var ids []string
			for _, devices := range container.Devices {
				if devices.ResourceName == memoryResource {
					ids = append(ids, devices.DeviceIds...)
				}
			}
			if len(ids) == 0 {
				continue
			}
			name := scopeName(ids)
			known[name] = true
			if err := k.scopes.label(name, pod.Namespace, pod.Name, container.Name); err != nil {
				log.Printf("the labels of %s/%s: %v", pod.Namespace, pod.Name, err)
			}
		}
	}
	return known
}

// prune removes the scopes that are in no pod and that no process uses.
func (k *keeper) prune(known map[string]bool, now time.Time) error {
	names, err := k.scopes.list()
	if err != nil {
		return err
	}
	k.scopes.mutex.Lock()
	defer k.scopes.mutex.Unlock()
	missing := k.scopes.missing
	for _, name := range names {
		since, isMissing := missing[name]
		switch {
		case known[name]:
			delete(missing, name)
		case !isMissing:
			missing[name] = now
		case now.Sub(since) >= k.grace && !k.scopes.isUsed(name):
			delete(missing, name)
			if err := k.scopes.remove(name); err != nil {
				log.Printf("%s: %v", k.scopes.path(name), err)
			}
		}
	}
	return nil
}
