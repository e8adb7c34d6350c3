package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/layermetrics"
	"github.com/berth-vm/berth/internal/metricsserver"
	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/transfer/layercache"
)

// podsDir is the kubelet's directory of pods, mounted where it is on the node.
const podsDir = "/var/lib/kubelet/pods"

// metricsAddress is the address at which Prometheus gets the counts of the node's layers. The cache itself reads untrusted input,
// and opens no port.
const metricsAddress = ":8080"

// introduceDisks introduces every holder on this node to the launcher it belongs to. It keeps no state: readiness of a holder
// shows that it was introduced, so a restarted agent continues where the last one stopped.
func introduceDisks(ctx context.Context, log *slog.Logger, node string) error {
	if node == "" {
		return errors.New("no node: set NODE_NAME")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = "spec.nodeName=" + node
		o.LabelSelector = "kubevirt.io in (virt-launcher, hotplug-disk)"
	}))
	pods := factory.Core().V1().Pods().Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	// A node whose counts cannot be read is served all the same.
	meter := layermetrics.Meter{Ask: func() (layercache.Counts, error) { return layerCounts(cacheMeetDir) }}
	numbers := metricsserver.Server{Address: metricsAddress, TLS: os.Getenv(metricsserver.Environment), From: metricsserver.Registry(meter), Log: log}
	if end, err := numbers.Serve(); err != nil {
		log.Error("there are no metrics", "error", err.Error())
	} else {
		defer end()
	}
	a := &agent{pods: pods, log: log, introduce: introduce, introduceCache: introduceCache}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := errors.Join(a.round(), a.cacheRound()); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// agent introduces the holders of one node.
type agent struct {
	pods      listers.PodLister
	log       *slog.Logger
	introduce func(holder, launcher types.UID) error
	busy      sync.Map // the holders that are being introduced, by UID
	// introduceCache says whether the launcher wanted to be introduced.
	introduceCache func(launcher types.UID, namespace string) (bool, error)
	meeting        sync.Map // the launchers that are being introduced to the cache of layers, by UID
}

// round begins to introduce every holder that waits. Each is on its own: a pod that hangs delays no one else's disks.
func (a *agent) round() error {
	holders, err := a.pods.List(labels.SelectorFromSet(labels.Set{"kubevirt.io": "hotplug-disk"}))
	if err != nil {
		return fmt.Errorf("list holders: %w", err)
	}
	for _, h := range holders {
		launcher := launcherOf(a.pods, h)
		if !waits(h) || launcher == nil {
			continue
		}
		if _, there := a.busy.LoadOrStore(h.UID, true); there {
			continue // the last try is not over
		}
		go func() {
			defer a.busy.Delete(h.UID)
			if err := a.introduce(h.UID, launcher.UID); err != nil {
				a.log.Info("no introduction yet", "holder", h.Namespace+"/"+h.Name, "why", err.Error())
				return
			}
			a.log.Info("introduced", "holder", h.Namespace+"/"+h.Name, "launcher", launcher.Name)
		}()
	}
	return nil
}

// waits reports whether the holder runs and no guest has its disk.
func waits(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil && !c.Ready {
			return true
		}
	}
	return false
}

// launcherOf returns the pod a holder belongs to: of the same namespace, since an owner always is, and on this node.
func launcherOf(pods listers.PodLister, holder *corev1.Pod) *corev1.Pod {
	owner := metav1.GetControllerOf(holder)
	if owner == nil || owner.Kind != "Pod" {
		return nil
	}
	p, err := pods.Pods(holder.Namespace).Get(owner.Name)
	if err != nil || p.UID != owner.UID || p.Labels["kubevirt.io"] != "virt-launcher" {
		return nil
	}
	return p
}

func introduce(holder, launcher types.UID) error {
	h, err := reach(podsDir, holder, rendezvous.Socket)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	l, err := reach(podsDir, launcher, rendezvous.Socket)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	return rendezvous.Introduce(h, l)
}

// reach connects to a socket a pod waits at.
func reach(dir string, pod types.UID, socket string) (*net.UnixConn, error) {
	c, err := dialBeneath(dir, path.Join(string(pod), "volumes", "kubernetes.io~empty-dir", launcherapi.MeetVolume, socket))
	if err != nil {
		return nil, fmt.Errorf("reach pod %s: %w", pod, err)
	}
	return c, nil
}

// dialBeneath connects to a socket in a directory that others write to. No link is followed: it could lead to another program's
// socket.
func dialBeneath(dir, name string) (*net.UnixConn, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	fd, err := unix.Openat2(int(root.Fd()), name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, fmt.Errorf("nobody waits there: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d", fd), Net: "unix"})
}
