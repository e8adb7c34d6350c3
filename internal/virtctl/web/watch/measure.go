package watch

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-vm/berth/internal/usagetype"
	"github.com/berth-vm/berth/internal/virtctl/web/view"
)

// No object that could be watched shows how full a pool is: the driver of its node is asked, through the API server and with the
// rights of the person, while the page is open.
const (
	measureEvery  = 30 * time.Second
	measureWithin = 10 * time.Second
	measureMost   = 1 << 20 // bytes of an answer
)

// measure asks the drivers while the page is open, until the store ends or the person is not allowed to.
func (s *Store) measure(ctx context.Context) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.looked: // by one more
		case <-tick.C:
		}
		if !s.anybody() {
			continue // the next who looks begins it again
		}
		if s.ask(ctx) {
			return
		}
		tick.Reset(measureEvery)
	}
}

func (s *Store) anybody() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers) > 0
}

// ask asks every driver once. True: the person may not.
func (s *Store) ask(ctx context.Context) (forbidden bool) {
	ctx, cancel := context.WithTimeout(ctx, measureWithin)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	found := map[string]view.Measure{}
	for _, p := range drivers(of[*storagev1.CSIStorageCapacity](s, "csistoragecapacities"), of[*corev1.Pod](s, "pods")) {
		all.Go(func() {
			text, err := s.client.Core.CoreV1().RESTClient().Get().Namespace(p.Namespace).Resource("pods").
				Name(fmt.Sprintf("%s:%d", p.Name, usagetype.MetricsPort)).SubResource("proxy").Suffix("metrics").DoRaw(ctx)
			mu.Lock()
			defer mu.Unlock()
			forbidden = forbidden || apierrors.IsForbidden(err)
			if err == nil && len(text) < measureMost {
				maps.Copy(found, measures(string(text), p.Spec.NodeName))
			}
		})
	}
	all.Wait()
	s.mu.Lock()
	same := maps.Equal(s.measured, found)
	s.measured = found
	s.mu.Unlock()
	if !same {
		s.changed()
	}
	return forbidden
}

// drivers returns the pods of the local disk driver: those that run in a namespace where it says what room it has, which tenants
// cannot.
func drivers(capacities []*storagev1.CSIStorageCapacity, pods []*corev1.Pod) []*corev1.Pod {
	namespaces := map[string]bool{}
	for _, c := range capacities {
		if c.Labels["csi.storage.k8s.io/drivername"] == usagetype.Driver {
			namespaces[c.Namespace] = true
		}
	}
	var out []*corev1.Pod
	for _, p := range pods {
		if namespaces[p.Namespace] && p.Labels["app.kubernetes.io/name"] == usagetype.App && p.Status.Phase == corev1.PodRunning && p.Spec.NodeName != "" {
			out = append(out, p)
		}
	}
	return out
}

var poolLine = regexp.MustCompile(`^localdisk_pool_(used|capacity)_bytes\{node="([^"]*)",usage_type="([^"]*)"\} (\S+)$`)

// measures parses the metrics that a node's driver serves, as far as they are about that node.
func measures(text, node string) map[string]view.Measure {
	out := map[string]view.Measure{}
	for line := range strings.Lines(text) {
		m := poolLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || m[2] != node {
			continue
		}
		n, err := strconv.ParseFloat(m[4], 64)
		if err != nil || math.IsNaN(n) || n < 0 || n > 1<<62 {
			continue
		}
		key := view.PoolKey(node, m[3])
		measure := out[key]
		if m[1] == "used" {
			measure.Used = int64(n)
		} else {
			measure.Capacity = int64(n)
		}
		out[key] = measure
	}
	return out
}
