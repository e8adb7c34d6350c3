package datavolume

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
)

// A clone whose volumes no one pod can have is streamed: a server in the source's namespace, the ordinary worker in the
// target's, and a pair of keys made for this clone alone. What lies in another namespace cannot be owned by the volume,
// so a finalizer on the volume sees to it that it is removed.

const (
	servePort = 8443
	finalizer = "cdi.kubevirt.io/cloneSource"
)

func (s *seen) serverName() string { return string(s.volume.UID) + "-source-pod" }
func (s *seen) serverKeys() string { return string(s.volume.UID) + "-source-tls" }
func (s *seen) clientKeys() string { return string(s.volume.UID) + "-target-tls" }
func (s *seen) acrossSpaces() bool { return s.serverSpace() != s.volume.Namespace }

func (s *seen) serverSpace() string {
	namespace, _ := s.originName()
	return namespace
}

// observeServer reads the server of a streamed clone, and says whether it can be read from yet.
func (r *Reconciler) observeServer(ctx context.Context, s *seen) error {
	if s.source.PVC == nil {
		return nil
	}
	var err error
	s.origin.server, err = get[corev1.Pod](ctx, r.reader, s.serverSpace(), s.serverName())
	if err != nil || s.origin.strategy != clone.Stream {
		return err
	}
	if p := s.origin.server; p == nil || !podReady(p) || p.Status.PodIP == "" || p.DeletionTimestamp != nil {
		s.origin.fact = volume.Unready
	}
	return nil
}

// startServer makes the server of a streamed clone, after the keys for both ends. Keys are made anew until there is a
// server to hold them, so that a crash in between never leaves two ends that do not trust each other.
func (r *Reconciler) startServer(ctx context.Context, s *seen) error {
	if p := s.origin.server; p != nil {
		over := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		if over && p.DeletionTimestamp == nil {
			return r.cluster.Delete(ctx, p)
		}
		return nil
	}
	if s.acrossSpaces() {
		if err := r.cluster.Mark(ctx, s.volume, cluster.Marks{Finalizers: []string{finalizer}}); err != nil {
			return err
		}
	}
	keys, err := makeKeys(s.now)
	if err != nil {
		return err
	}
	for _, secret := range []*corev1.Secret{
		r.secret(s, s.serverSpace(), s.serverKeys(), keys.server), r.secret(s, s.volume.Namespace, s.clientKeys(), keys.client),
	} {
		if err := r.cluster.Apply(ctx, secret); err != nil {
			return err
		}
	}
	pod, err := r.server(s).Pod()
	if err != nil {
		return err
	}
	pod.Annotations[annVolume] = s.volume.Namespace + "/" + s.volume.Name
	return r.cluster.Create(ctx, pod)
}

func (r *Reconciler) secret(s *seen, namespace, name string, data map[string][]byte) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: render.Labels(render.RoleServe)},
		Type:       corev1.SecretTypeTLS, Data: data,
	}
	if namespace == s.volume.Namespace {
		secret.OwnerReferences = []metav1.OwnerReference{render.VolumeOwner(s.volume)}
	}
	return secret
}

func (r *Reconciler) server(s *seen) render.Worker {
	disk := render.Disk{Claim: s.origin.claim.Name, Block: isBlock(s.origin.claim.Spec.VolumeMode)}
	w := render.Worker{
		Name: s.serverName(), Namespace: s.serverSpace(), Role: render.RoleServe, ClaimUID: s.origin.claim.UID,
		VolumeUID: s.volume.UID, Command: "serve", Source: &disk, Listen: servePort,
		Secrets: []render.Secret{{Name: s.serverKeys(), Dir: render.TLSDir}}, Settings: r.pods(s.settings),
		Task: task.Serve{
			Version: task.Version, Volume: s.origin.claim.Namespace + "/" + s.origin.claim.Name,
			Path: disk.SourcePath(s.content()), Content: s.content(), Listen: ":" + strconv.Itoa(servePort), TLSDir: render.TLSDir,
		},
	}
	if !s.acrossSpaces() {
		w.Owner = render.VolumeOwner(s.volume)
	}
	return w
}

// cleanUp removes what only the transfer needed. Looking costs nothing (the cache knows), so it is done whenever a
// volume is complete or condemned.
func (r *Reconciler) cleanUp(ctx context.Context, s *seen) error {
	if s.source == nil {
		return nil
	}
	if err := r.dropSnapshot(ctx, s); err != nil {
		return err
	}
	if s.origin.server == nil && !controllerutil.ContainsFinalizer(s.volume, finalizer) {
		return nil
	}
	return r.removeServer(ctx, s)
}

// removeServer removes the server last: as long as it is there, what else is left is remembered.
func (r *Reconciler) removeServer(ctx context.Context, s *seen) error {
	for _, secret := range []*corev1.Secret{
		r.secret(s, s.serverSpace(), s.serverKeys(), nil), r.secret(s, s.volume.Namespace, s.clientKeys(), nil),
	} {
		if err := r.cluster.Delete(ctx, secret); err != nil {
			return err
		}
	}
	if p := s.origin.server; p != nil && p.DeletionTimestamp == nil {
		if err := r.cluster.Delete(ctx, p); err != nil {
			return err
		}
	}
	if controllerutil.ContainsFinalizer(s.volume, finalizer) {
		return r.cluster.Mark(ctx, s.volume, cluster.Marks{})
	}
	return nil
}

// release lets a volume that is being deleted go, once nothing of it is left in other namespaces.
func (r *Reconciler) release(ctx context.Context, v *cdiv1.DataVolume) error {
	if !controllerutil.ContainsFinalizer(v, finalizer) {
		return nil // everything else is owned by the volume and goes with it
	}
	s := &seen{volume: v, source: v.Spec.Source, now: r.clock.Now()}
	if err := r.resolve(ctx, s); err != nil {
		return err
	}
	// A DataSource may stand for something else by now; where the server is, it says itself.
	var servers corev1.PodList
	mine := client.MatchingLabels{render.LabelVolumeUID: string(v.UID), render.LabelComponent: render.RoleServe}
	if err := r.reader.List(ctx, &servers, mine); err != nil {
		return fmt.Errorf("list servers of volume %s/%s: %w", v.Namespace, v.Name, err)
	}
	for i := range servers.Items {
		s.origin.server = &servers.Items[i]
		s.source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: servers.Items[i].Namespace}}
	}
	if s.source == nil || s.source.PVC == nil {
		s.source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: v.Namespace}}
	}
	return r.removeServer(ctx, s)
}
