package fill

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/index"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
)

// A clone whose volumes no one pod can have is streamed: a server in the source's namespace, the ordinary worker in the
// target's, and a pair of keys made for this clone alone. What lies in another namespace cannot be owned by the volume,
// so a finalizer on whom it is for sees to it that it is removed.

const servePort = 8443

func (s *Seen) serverName() string { return string(s.order.UID) + "-source-pod" }
func (s *Seen) serverKeys() string { return string(s.order.UID) + "-source-tls" }
func (s *Seen) clientKeys() string { return string(s.order.UID) + "-target-tls" }
func (s *Seen) acrossSpaces() bool { return s.serverSpace() != s.order.Namespace }

func (s *Seen) serverSpace() string {
	namespace, _ := s.originName()
	return namespace
}

// observeAids reads what is there only for the transfer: the server of a streamed clone, and the claim a snapshot was restored
// to.
func (e *Engine) observeAids(ctx context.Context, s *Seen) error {
	var err error
	if s.origin.server, err = e.readServer(ctx, e.reader, s); err != nil {
		return err
	}
	s.origin.restored, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, e.reader, s.serverSpace(), s.restoredName())
	return err
}

// readServer reads the server of a streamed clone. One in another namespace cannot be owned by the volume; who could make one of
// this name there has the source itself to change.
func (e *Engine) readServer(ctx context.Context, from client.Reader, s *Seen) (*corev1.Pod, error) {
	if !s.acrossSpaces() {
		return cluster.Owned[corev1.Pod](ctx, from, s.order.Owner.UID, s.serverSpace(), s.serverName())
	}
	return cluster.Get[corev1.Pod](ctx, from, s.serverSpace(), s.serverName())
}

// startServer makes the server of a streamed clone, after the keys for both ends. Keys are made anew until there is a
// server to hold them, so that a crash in between never leaves two ends that do not trust each other.
func (e *Engine) startServer(ctx context.Context, s *Seen) error {
	if p := s.origin.server; p != nil {
		if over(p) && p.DeletionTimestamp == nil {
			return e.cluster.Delete(ctx, p)
		}
		return nil
	}
	// A cache that has not heard of the server yet would have it and its client hold keys of two makes.
	if now, err := e.readServer(ctx, e.live, s); err != nil {
		return err
	} else if now != nil {
		return errStale
	}
	if s.acrossSpaces() {
		if err := e.hold(ctx, s, true); err != nil {
			return err
		}
	}
	keys, err := makeKeys(s.now)
	if err != nil {
		return err
	}
	for _, secret := range []*corev1.Secret{
		e.secret(s, s.serverSpace(), s.serverKeys(), keys.server), e.secret(s, s.order.Namespace, s.clientKeys(), keys.client),
	} {
		if err := e.cluster.Replace(ctx, secret); err != nil {
			return err
		}
	}
	pod, err := e.server(s).Pod()
	if err != nil {
		return err
	}
	if err := e.follow(ctx, pod, s.origin.home); err != nil {
		return err
	}
	pod.Annotations[AnnServes] = s.order.Namespace + "/" + s.order.For.GetName()
	return e.cluster.Create(ctx, pod)
}

func (e *Engine) secret(s *Seen, namespace, name string, data map[string][]byte) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: render.Labels(render.RoleServe)},
		Type:       corev1.SecretTypeTLS, Data: data,
	}
	if namespace == s.order.Namespace {
		secret.OwnerReferences = []metav1.OwnerReference{s.order.Owner}
	}
	return secret
}

func (e *Engine) server(s *Seen) render.Worker {
	disk := render.Disk{Claim: s.origin.claim.Name, Block: isBlock(s.origin.claim.Spec.VolumeMode)}
	w := render.Worker{
		Name: s.serverName(), Namespace: s.serverSpace(), Role: render.RoleServe, ClaimUID: s.origin.claim.UID,
		VolumeUID: s.order.UID, Command: "serve", Source: &disk, Listen: servePort,
		Secrets: []render.Secret{{Name: s.serverKeys(), Dir: render.TLSDir}}, Settings: PodSettings(e.image, s.settings),
		Task: task.Serve{
			Version: task.Version, Volume: s.origin.claim.Namespace + "/" + s.origin.claim.Name,
			Path: disk.SourcePath(s.content()), Content: s.content(), Listen: ":" + strconv.Itoa(servePort), TLSDir: render.TLSDir,
		},
	}
	if s.origin.via != "" { // the server may be the first consumer of what the snapshot is restored to
		w.Settings.Affinity = within(w.Settings.Affinity, s.origin.home)
	}
	if !s.acrossSpaces() {
		w.Owner = s.order.Owner
	}
	return w
}

// cleanUp removes what only the transfer needed. Looking costs nothing (the cache knows), so it is done whenever a
// volume is complete or condemned.
func (e *Engine) cleanUp(ctx context.Context, s *Seen) error {
	if s.source == nil {
		return nil
	}
	if err := e.dropSnapshot(ctx, s); err != nil {
		return err
	}
	return e.removeAids(ctx, s)
}

// removeAids removes the server last, but for the claim it reads from: as long as one of them is there, what else is left is
// remembered.
func (e *Engine) removeAids(ctx context.Context, s *Seen) error {
	if err := e.removeAidsHere(ctx, s); err != nil {
		return err
	}
	if s.order.held() {
		return e.hold(ctx, s, false)
	}
	return nil
}

// removeAidsHere removes those in the namespace that s reads from.
func (e *Engine) removeAidsHere(ctx context.Context, s *Seen) error {
	o := &s.origin
	if o.server == nil && o.restored == nil && !s.order.held() {
		return nil
	}
	if o.restored != nil && isFrom(o.restored, s.snapshotName()) || s.order.held() {
		if err := e.deleteSnapshot(ctx, s); err != nil {
			return err
		}
	}
	for _, secret := range []*corev1.Secret{
		e.secret(s, s.serverSpace(), s.serverKeys(), nil), e.secret(s, s.order.Namespace, s.clientKeys(), nil),
	} {
		if err := e.cluster.Delete(ctx, secret); err != nil {
			return err
		}
	}
	if p := o.server; p != nil && p.DeletionTimestamp == nil {
		if err := e.cluster.Delete(ctx, p); err != nil {
			return err
		}
	}
	if c := o.restored; c != nil && c.DeletionTimestamp == nil {
		return e.cluster.Delete(ctx, c)
	}
	return nil
}

// Release lets whom the order is for go, once nothing of it is left in other namespaces. Everything else is owned by it
// and goes with it.
func (e *Engine) Release(ctx context.Context, o Order) error {
	if !o.held() {
		return nil
	}
	return e.removeLastAids(ctx, o)
}

// removeLastAids removes what is left of a clone, wherever it is. A reference may stand for something else by now; where the
// server and what it reads from are, they say themselves. They say it by labels, which anybody can write on a pod of their
// own: so each namespace that seems to have something is looked through for what has the names we gave, and none is
// taken for the only one.
func (e *Engine) removeLastAids(ctx context.Context, o Order) error {
	spaces, err := e.aidSpaces(ctx, o)
	if err != nil {
		return err
	}
	for _, space := range spaces {
		s := e.seenIn(o, space)
		if err := e.observeAids(ctx, s); err != nil {
			return err
		}
		if err := e.removeAidsHere(ctx, s); err != nil {
			return err
		}
	}
	if o.held() {
		return e.hold(ctx, e.seenIn(o, o.Namespace), false)
	}
	return nil
}

// seenIn is an order whose source is in that namespace, whatever it is.
func (e *Engine) seenIn(o Order, space string) *Seen {
	return &Seen{order: o, now: e.clock.Now(), source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: space}}}
}

// aidSpaces are the namespaces that may have something that is only there for the order's transfer.
func (e *Engine) aidSpaces(ctx context.Context, o Order) ([]string, error) {
	s := &Seen{order: o, source: o.Spec.Source, now: e.clock.Now()}
	if err := e.resolve(ctx, s); err != nil {
		return nil, err
	}
	spaces := []string{o.Namespace}
	if s.source != nil && (s.source.PVC != nil || s.source.Snapshot != nil) {
		spaces = append(spaces, s.serverSpace())
	}
	mine := func(role string) client.MatchingLabels {
		return client.MatchingLabels{render.LabelVolumeUID: string(o.UID), render.LabelComponent: role}
	}
	known := client.MatchingFields{index.VolumeUID: string(o.UID)}
	var servers corev1.PodList
	if err := e.reader.List(ctx, &servers, known, mine(render.RoleServe)); err != nil {
		return nil, fmt.Errorf("list servers of %s/%s: %w", o.Namespace, o.For.GetName(), err)
	}
	for i := range servers.Items {
		spaces = append(spaces, servers.Items[i].Namespace)
	}
	var restored corev1.PersistentVolumeClaimList
	if err := e.reader.List(ctx, &restored, known, mine(roleRestored)); err != nil {
		return nil, fmt.Errorf("list what was restored for %s/%s: %w", o.Namespace, o.For.GetName(), err)
	}
	for i := range restored.Items {
		spaces = append(spaces, restored.Items[i].Namespace)
	}
	slices.Sort(spaces)
	return slices.Compact(spaces), nil
}

// Discard removes everything that was made for an order, the claim last: as long as it is there, the rest is remembered.
func (e *Engine) Discard(ctx context.Context, o Order) error {
	for _, role := range []string{render.RoleImport, render.RoleUpload} {
		worker, err := cluster.Owned[corev1.Pod](ctx, e.reader, o.Owner.UID, o.Namespace, render.WorkerName(role, o.Name))
		if err != nil {
			return err
		}
		kept := o.Annotations[AnnRetain] == "true" && worker != nil && worker.Status.Phase == corev1.PodSucceeded
		if worker == nil || worker.DeletionTimestamp != nil || kept {
			continue
		}
		if err := e.cluster.Delete(ctx, worker); err != nil {
			return err
		}
	}
	if err := e.removeLastAids(ctx, o); err != nil {
		return err
	}
	s := e.seenIn(o, o.Namespace) // a claim is restored from a snapshot beside it
	var err error
	s.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, e.reader, o.Namespace, o.Name)
	if err != nil || s.claim == nil || !metav1.IsControlledBy(s.claim, o.For) {
		return err
	}
	if err := e.dropSnapshot(ctx, s); err != nil {
		return err
	}
	if s.claim.DeletionTimestamp != nil {
		return nil
	}
	return e.cluster.Delete(ctx, s.claim)
}

// hold makes whom the order is for wait for us when it is deleted, or lets it go.
func (e *Engine) hold(ctx context.Context, s *Seen, yes bool) error {
	s.order.Kept.Finalizers = nil
	if yes {
		s.order.Kept.Finalizers = []string{s.order.Finalizer}
	}
	return e.cluster.Mark(ctx, s.order.For, s.order.Kept)
}
