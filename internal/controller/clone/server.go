package clone

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
)

// A clone is streamed if no pod can have both of its volumes: a server in the source's namespace, the ordinary worker in the
// target's, and a pair of keys made for this clone alone. Objects in another namespace cannot be owned by the volume, so a
// finalizer on the order's owner ensures that they are removed.

const servePort = 8443

func (o *Order) serverName() string { return string(o.UID) + "-source-pod" }
func (o *Order) serverKeys() string { return string(o.UID) + "-source-tls" }
func (o *Order) clientKeys() string { return string(o.UID) + "-target-tls" }
func (s *Seen) acrossSpaces() bool  { return s.at.Namespace != s.order.Namespace }

// observeAids reads what is there only for the transfer: the server of a streamed clone, and the claim a snapshot was restored
// to.
func (c *observer) observeAids(ctx context.Context, s *Seen) error {
	var err error
	if s.server, err = c.readServer(ctx, c.reader, s); err != nil {
		return err
	}
	if s.server != nil {
		if s.admitted, err = c.records.Admitted(ctx, s.server); err != nil {
			return err
		}
	}
	s.restored, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, c.reader, s.at.Namespace, s.order.restoredName())
	return err
}

// readServer reads the server of a streamed clone. One in another namespace cannot be owned by the volume; who could make one of
// this name there has the source itself to change.
func (c *observer) readServer(ctx context.Context, from client.Reader, s *Seen) (*corev1.Pod, error) {
	if !s.acrossSpaces() {
		return cluster.Owned[corev1.Pod](ctx, from, s.order.Owner.UID, s.at.Namespace, s.order.serverName())
	}
	return cluster.Get[corev1.Pod](ctx, from, s.at.Namespace, s.order.serverName())
}

// startServer makes the server of a streamed clone, after the keys for both ends. Keys are made again until there is a server to
// hold them, so that a crash in between never leaves two ends that do not trust each other.
func (c *Cloner) startServer(ctx context.Context, s *Seen) error {
	if p := s.server; p != nil {
		if (pods.Over(p) || s.outdated(p)) && p.DeletionTimestamp == nil {
			return c.cluster.Delete(ctx, p)
		}
		if s.admitted || p.DeletionTimestamp != nil {
			return nil
		}
		return c.records.Admit(ctx, p)
	}
	// A stale cache without the server would give the server and its client different keys.
	if now, err := c.readServer(ctx, c.live, s); err != nil {
		return err
	} else if now != nil {
		return cluster.ErrStale
	}
	if s.acrossSpaces() {
		if err := c.hold(ctx, s, true); err != nil {
			return err
		}
	}
	keys, err := makeKeys(s.now)
	if err != nil {
		return err
	}
	for _, secret := range []*corev1.Secret{
		c.secret(s, s.at.Namespace, s.order.serverKeys(), keys.server), c.secret(s, s.order.Namespace, s.order.clientKeys(), keys.client),
	} {
		if err := c.cluster.Replace(ctx, secret); err != nil {
			return err
		}
	}
	pod, err := c.serving(s).Pod()
	if err != nil {
		return err
	}
	if err := nodeselect.Follow(ctx, c.reader, pod, s.home); err != nil {
		return err
	}
	pod.Annotations[names.Serves] = s.order.Namespace + "/" + s.order.For.GetName()
	return c.cluster.Create(ctx, pod)
}

func (c *Cloner) secret(s *Seen, namespace, name string, data map[string][]byte) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: render.Labels(render.RoleServe)},
		Type:       corev1.SecretTypeTLS, Data: data,
	}
	if namespace == s.order.Namespace {
		secret.OwnerReferences = []metav1.OwnerReference{s.order.Owner}
	}
	return secret
}

func (c *Cloner) serving(s *Seen) render.Worker {
	from := s.reads()
	disk := render.Disk{Claim: from.Name, Block: isBlock(from.Spec.VolumeMode)}
	content := servedContent(disk.Block)
	w := render.Worker{
		Name: s.order.serverName(), Namespace: s.at.Namespace, Role: render.RoleServe, ClaimUID: from.UID,
		VolumeUID: s.order.UID, Command: "serve", Source: &disk, Listen: servePort,
		Secrets: []render.Secret{{Name: s.order.serverKeys(), Dir: render.TLSDir}}, Settings: s.target.Settings.Pod(c.image),
		Task: task.Serve{
			Version: task.Version, Volume: from.Namespace + "/" + from.Name,
			Path: disk.SourcePath(content), Content: content, Listen: ":" + strconv.Itoa(servePort), TLSDir: render.TLSDir,
		},
	}
	if s.step.Via { // the server may be the first consumer of what the snapshot is restored to
		w.Settings.Affinity = nodeselect.Within(w.Settings.Affinity, s.home)
	}
	if !s.acrossSpaces() {
		w.Owner = s.order.Owner
	}
	return w
}

// servedContent returns what is served of a claim: its device, or all that is on its filesystem.
func servedContent(block bool) task.Content {
	if block {
		return task.Disk
	}
	return task.Volume
}

// outdated reports whether a server was made by an earlier version, and does not serve what is asked of one now.
func (s *Seen) outdated(p *corev1.Pod) bool {
	var serve task.Serve
	text := p.Annotations[render.AnnTask]
	return s.found.There() && text != "" && (json.Unmarshal([]byte(text), &serve) != nil || serve.Content != servedContent(s.block()))
}

// removeAids removes the server last, but for the claim it reads from: as long as one of them is there, what else is left is
// remembered.
func (c *Cloner) removeAids(ctx context.Context, s *Seen) error {
	if err := c.removeAidsHere(ctx, s); err != nil {
		return err
	}
	if s.order.held() {
		return c.hold(ctx, s, false)
	}
	return nil
}

// removeAidsHere removes those in the namespace that s reads from, and the client's keys. The order must be known to be the one
// that they were made for.
func (c *Cloner) removeAidsHere(ctx context.Context, s *Seen) error {
	if s.server == nil && s.restored == nil && !s.order.held() {
		return nil
	}
	if err := c.cluster.Delete(ctx, c.secret(s, s.order.Namespace, s.order.clientKeys(), nil)); err != nil {
		return err
	}
	return c.removeAtSource(ctx, s)
}

// removeAtSource removes the objects that were made in the namespace of the source, and none in other namespaces.
func (c *Cloner) removeAtSource(ctx context.Context, s *Seen) error {
	if s.restored != nil && isFrom(s.restored, s.order.snapshotName()) || s.order.held() {
		if err := c.deleteSnapshot(ctx, s); err != nil {
			return err
		}
	}
	if err := c.cluster.Delete(ctx, c.secret(s, s.at.Namespace, s.order.serverKeys(), nil)); err != nil {
		return err
	}
	if p := s.server; p != nil && p.DeletionTimestamp == nil {
		if err := c.cluster.Delete(ctx, p); err != nil {
			return err
		}
	}
	if s.restored != nil && s.restored.DeletionTimestamp == nil {
		return c.cluster.Delete(ctx, s.restored)
	}
	return nil
}

// Release removes our finalizer from the order's owner, once no object made for it is left in other namespaces. The other objects
// are owned by it and deleted with it.
func (c *Cloner) Release(ctx context.Context, o Order) error {
	if !o.held() {
		return nil
	}
	return c.removeLastAids(ctx, o)
}

// removeLastAids removes the helper objects of a clone, in all namespaces. A reference may lead to another source by now, so the
// server and the labels of the helper objects name the namespaces. Any user can write such labels on a pod, so each of these
// namespaces is searched for objects with the names that this controller gives, and none is assumed to be the only one.
func (c *Cloner) removeLastAids(ctx context.Context, o Order) error {
	spaces, err := c.aidSpaces(ctx, o)
	if err != nil {
		return err
	}
	for _, space := range spaces {
		s := c.seenIn(o, space)
		if err := c.observeAids(ctx, s); err != nil {
			return err
		}
		if err := c.removeAidsHere(ctx, s); err != nil {
			return err
		}
	}
	if o.held() {
		return c.hold(ctx, c.seenIn(o, o.Namespace), false)
	}
	return nil
}

// seenIn returns an order whose source is in that namespace, whatever it is.
func (c *Cloner) seenIn(o Order, space string) *Seen {
	return &Seen{order: o, now: c.clock.Now(), at: clonesource.At(clonesource.Claim, space, "")}
}

// aidSpaces returns the namespaces that may have helper objects of the order's transfer.
func (c *Cloner) aidSpaces(ctx context.Context, o Order) ([]string, error) {
	resolved, err := clonesource.Resolve(ctx, c.objects, o.Namespace, o.Spec)
	if err != nil {
		return nil, err
	}
	spaces := []string{o.Namespace}
	if at, ok := clonesource.OfSource(o.Namespace, resolved.Source); ok {
		spaces = append(spaces, at.Namespace)
	}
	mine := func(role string) client.MatchingLabels {
		return client.MatchingLabels{render.LabelVolumeUID: string(o.UID), render.LabelComponent: role}
	}
	known := client.MatchingFields{cacheindex.VolumeUID: string(o.UID)}
	var servers corev1.PodList
	if err := c.reader.List(ctx, &servers, known, mine(render.RoleServe)); err != nil {
		return nil, fmt.Errorf("list servers of %s/%s: %w", o.Namespace, o.For.GetName(), err)
	}
	for i := range servers.Items {
		spaces = append(spaces, servers.Items[i].Namespace)
	}
	var restored corev1.PersistentVolumeClaimList
	if err := c.reader.List(ctx, &restored, known, mine(roleRestored)); err != nil {
		return nil, fmt.Errorf("list what was restored for %s/%s: %w", o.Namespace, o.For.GetName(), err)
	}
	for i := range restored.Items {
		spaces = append(spaces, restored.Items[i].Namespace)
	}
	slices.Sort(spaces)
	return slices.Compact(spaces), nil
}

// Discard removes all objects that were made for a clone, including the snapshot that its claim is restored from.
func (c *Cloner) Discard(ctx context.Context, o Order, claim *corev1.PersistentVolumeClaim) error {
	if err := c.removeLastAids(ctx, o); err != nil || claim == nil {
		return err
	}
	s := c.seenIn(o, o.Namespace) // a claim is restored from a snapshot beside it
	s.target.Claim = claim
	return c.DropSnapshot(ctx, s)
}

// held reports whether For must not be deleted before objects in other namespaces are.
func (o *Order) held() bool { return slices.Contains(o.For.GetFinalizers(), o.Finalizer) }

// hold adds our finalizer to the order's owner, or removes it.
func (c *Cloner) hold(ctx context.Context, s *Seen, yes bool) error {
	s.order.Kept.Finalizers = nil
	if yes {
		s.order.Kept.Finalizers = []string{s.order.Finalizer}
	}
	return c.cluster.Mark(ctx, s.order.For, *s.order.Kept)
}
