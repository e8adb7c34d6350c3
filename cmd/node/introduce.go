package main

import (
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/transfer/layercache"
)

// cacheRound begins to introduce every launcher that waits for the node's cache of layers. Forging a launcher's label gains
// nothing: the cache gives layers only to clients that prove that they can read them.
func (a *agent) cacheRound() error {
	launchers, err := a.pods.List(labels.SelectorFromSet(labels.Set{"kubevirt.io": "virt-launcher"}))
	if err != nil {
		return fmt.Errorf("list launchers: %w", err)
	}
	for _, p := range launchers {
		if !lives(p) {
			continue
		}
		if _, there := a.meeting.LoadOrStore(p.UID, true); there {
			continue // the last try is not over
		}
		go func() {
			defer a.meeting.Delete(p.UID)
			wanted, err := a.introduceCache(p.UID, p.Namespace)
			switch {
			case !wanted:
			case err != nil:
				a.log.Info("no layers for a machine yet", "launcher", p.Namespace+"/"+p.Name, "why", err.Error())
			default:
				a.log.Info("introduced to the cache of layers", "launcher", p.Namespace+"/"+p.Name)
			}
		}()
	}
	return nil
}

// lives reports whether the pod has not ended and is not to end. Its launcher may wait for layers before the kubelet says that it
// runs.
func lives(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func introduceCache(launcher types.UID, namespace string) (wanted bool, err error) {
	l, err := reach(podsDir, launcher, rendezvous.LayersSocket)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	defer func() { _ = l.Close() }()
	c, err := dialBeneath(cacheMeetDir, rendezvous.Socket)
	if err != nil {
		return true, fmt.Errorf("reach the cache of layers: %w", err)
	}
	defer func() { _ = c.Close() }()
	return true, rendezvous.IntroduceCache(c, l, namespace)
}

// layerCounts asks the cache in dir what it holds.
func layerCounts(dir string) (layercache.Counts, error) {
	c, err := dialBeneath(dir, countsSocket)
	if err != nil {
		return layercache.Counts{}, fmt.Errorf("reach the cache of layers: %w", err)
	}
	return layercache.ReadCounts(c)
}
