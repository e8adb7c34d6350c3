package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/snapshot"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"
)

const (
	// annContent on a restore is the VirtualMachineSnapshotContent that it began with. It continues with that one, even if the
	// VirtualMachineSnapshot is deleted.
	annContent = "berth.dev/restore-content"
	// annCommitted on a restore, with the value true: claims of the machine are being replaced.
	annCommitted = "berth.dev/restore-committed"
	// labelKept on a volume is the UID of the restore that keeps it until its successor has its claim's name.
	labelKept = "berth.dev/kept-for-restore"
	// annPolicy on such a volume is the reclaim policy that it had.
	annPolicy = "berth.dev/reclaim-policy"
)

// contentFinalizer keeps the content of a snapshot while a restore works with it.
func (b *observed) contentFinalizer() string { return "berth.dev/restore-" + string(b.of.UID) }

// stageNow returns the stage of the restore. In a namespace that is being deleted no object can be created, so nothing is kept for it.
func (b *observed) stageNow() snapshot.Stage {
	known := b.data != nil && b.data.Content != nil
	switch {
	case known && b.elsewhere():
		return snapshot.Elsewhere // whatever is written on it: nothing is replaced
	case b.of.Annotations[annCommitted] == "true" && !b.namespaceLeaving:
		return snapshot.Committed
	case known:
		return snapshot.Preparing
	}
	return snapshot.Elsewhere
}

// guard keeps the restore, and then the content that it works with, until cleanUp: what a restore made goes before the restore does.
func (r *Reconciler) guard(ctx context.Context, b *observed) error {
	if !controllerutil.ContainsFinalizer(b.of, names.RestoreFinalizer) || b.of.Annotations[annContent] != b.data.Content.Name {
		next := b.of.DeepCopy()
		controllerutil.AddFinalizer(next, names.RestoreFinalizer)
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, annContent, b.data.Content.Name)
		if err := r.cluster.Change(ctx, b.of, next); err != nil {
			return err
		}
		b.of = next
	}
	if controllerutil.ContainsFinalizer(b.data.Content, b.contentFinalizer()) {
		return nil
	}
	next := b.data.Content.DeepCopy()
	controllerutil.AddFinalizer(next, b.contentFinalizer())
	if err := r.cluster.Change(ctx, b.data.Content, next); err != nil {
		return err
	}
	b.data.Content = next
	return nil
}

// observeUsers finds the users of the claims that will be replaced: pods that have one, and machines that have its volume some
// other way.
func (r *Reconciler) observeUsers(ctx context.Context, b *observed) error {
	var all corev1.PodList
	if err := r.live.List(ctx, &all, client.InNamespace(b.of.Namespace)); err != nil {
		return fmt.Errorf("list the pods of namespace %s: %w", b.of.Namespace, err)
	}
	for i := range b.claims {
		c := &b.claims[i]
		if c.now == nil {
			continue
		}
		for j := range all.Items {
			p := &all.Items[j]
			if has, _ := pods.Has(p, c.now.Name); has && !pods.Over(p) {
				c.staged.users = append(c.staged.users, fmt.Sprintf("Pod %s uses PersistentVolumeClaim %s", p.Name, c.now.Name))
			}
		}
		pv, err := r.volumeOf(ctx, c.now)
		if err != nil {
			return err
		}
		if len(c.staged.users) > 0 || !belongsTo(pv, c.now) {
			continue
		}
		holders, err := r.records.HoldersNow(ctx, identity.Volume(pv))
		if err != nil {
			return err
		}
		for _, h := range holders {
			c.staged.users = append(c.staged.users, fmt.Sprintf("%s has the volume of PersistentVolumeClaim %s", holderText(h, b.of.Namespace), c.now.Name))
		}
	}
	return nil
}

// holderText names a holder: the machine, or the pod of a worker. What another namespace has is not told.
func holderText(h accessv1.Holder, namespace string) string {
	switch {
	case h.Namespace != namespace:
		return "a pod of another namespace"
	case h.Machine == "":
		return "Pod " + h.Pod
	}
	return "VirtualMachineInstance " + h.Machine
}

// commit writes down that the claims are replaced: the point of no return. The machine has to take the spec that it is to have in the end.
func (r *Reconciler) commit(ctx context.Context, b *observed) error {
	if b.changed() {
		next := b.vm.DeepCopy()
		var err error
		if next.Spec, err = b.spec(); err != nil {
			return err
		}
		switch err := r.cluster.Try(ctx, next); {
		case refusal(err) != "":
			b.denied = fmt.Sprintf("VirtualMachine %s cannot be what it was: %s", b.vm.Name, refusal(err))
			return nil
		case err != nil:
			return err
		}
	}
	next := b.of.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, annCommitted, "true")
	return r.cluster.Change(ctx, b.of, next)
}

// dropClaims deletes the claims that will be replaced. Their volumes are kept until all replacements have the names. The
// DataVolume of a claim gets an annotation first that its claim will have data, because otherwise it would make and fill another
// one.
func (r *Reconciler) dropClaims(ctx context.Context, b *observed) error {
	for _, c := range b.claims {
		if b.claim(c) != snapshot.Old {
			continue
		}
		if err := r.keep(ctx, b, c.now); err != nil {
			return err
		}
		if err := r.cluster.AwaitClaim(ctx, r.live, b.of.Namespace, b.volume(c)); err != nil {
			return err
		}
		if err := r.cluster.Delete(ctx, c.now); err != nil {
			return err
		}
	}
	return nil
}

// keep has the volume of a claim outlive the claim.
func (r *Reconciler) keep(ctx context.Context, b *observed, c *corev1.PersistentVolumeClaim) error {
	pv, err := r.volumeOf(ctx, c)
	if err != nil || !belongsTo(pv, c) || pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		return err
	}
	next := pv.DeepCopy()
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	next.Labels[labelKept] = string(b.of.UID)
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, annPolicy, string(pv.Spec.PersistentVolumeReclaimPolicy))
	next.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	return r.cluster.Change(ctx, pv, next)
}

// kept returns the volumes that the restore keeps.
func (r *Reconciler) kept(ctx context.Context, b *observed) ([]corev1.PersistentVolume, error) {
	var list corev1.PersistentVolumeList
	if err := r.live.List(ctx, &list, client.MatchingLabels{labelKept: string(b.of.UID)}); err != nil {
		return nil, fmt.Errorf("list the volumes that restore %s keeps: %w", b.of.Name, err)
	}
	return list.Items, nil
}

// release gives the kept volumes the reclaim policy that they had. One whose claim is gone goes then, as it would have at once.
func (r *Reconciler) release(ctx context.Context, b *observed) error {
	all, err := r.kept(ctx, b)
	if err != nil {
		return err
	}
	for i := range all {
		next := all[i].DeepCopy()
		if policy := next.Annotations[annPolicy]; policy != "" {
			next.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(policy)
		}
		delete(next.Labels, labelKept)
		delete(next.Annotations, annPolicy)
		if err := r.cluster.Change(ctx, &all[i], next); err != nil {
			return err
		}
	}
	return nil
}

// makeClaims makes the claims of the machine that are not there: naming the volumes that were made for them, or, of a machine that is
// made, from the VolumeSnapshots.
func (r *Reconciler) makeClaims(ctx context.Context, b *observed) error {
	for _, c := range b.claims {
		if c.now != nil {
			continue
		}
		made := b.newClaim(c)
		if b.inPlace() {
			made.Spec.VolumeName = c.staged.claim.Spec.VolumeName
			if node := c.staged.claim.Annotations[names.SelectedNode]; node != "" {
				made.Annotations[names.SelectedNode] = node // where the next restore makes it again
			}
		}
		switch err := r.cluster.Create(ctx, made); {
		case refusal(err) != "" && b.inPlace():
			b.denied = fmt.Sprintf("PersistentVolumeClaim %s is refused: %s", made.Name, refusal(err))
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// give gives the volumes to the claims that name them.
func (r *Reconciler) give(ctx context.Context, b *observed) error {
	for _, c := range b.claims {
		if b.claim(c) != snapshot.Open || !belongsTo(c.staged.volume, c.staged.claim) {
			continue
		}
		if err := r.cluster.Rebind(ctx, c.staged.volume, c.staged.claim.UID, c.now); err != nil {
			return err
		}
	}
	return nil
}

// cleanUp removes what is there only while the restore continues: staged claims, with volumes that did not get another name; that
// old volumes are kept; and, last, the finalizers.
func (r *Reconciler) cleanUp(ctx context.Context, b *observed) error {
	if !controllerutil.ContainsFinalizer(b.of, names.RestoreFinalizer) {
		return nil
	}
	if err := r.dropStaged(ctx, b); err != nil {
		return err
	}
	if err := r.release(ctx, b); err != nil {
		return err
	}
	content, err := cluster.Get[snapshotv1.VirtualMachineSnapshotContent](ctx, r.live, b.of.Namespace, b.of.Annotations[annContent])
	if err != nil {
		return err
	}
	if content != nil && controllerutil.ContainsFinalizer(content, b.contentFinalizer()) {
		next := content.DeepCopy()
		controllerutil.RemoveFinalizer(next, b.contentFinalizer())
		if err := r.cluster.Change(ctx, content, next); err != nil {
			return err
		}
	}
	next := b.of.DeepCopy()
	controllerutil.RemoveFinalizer(next, names.RestoreFinalizer)
	return r.cluster.Change(ctx, b.of, next)
}

// keptText names the volumes that have the machine's disks as they were.
func (b *observed) keptText() string {
	var out []string
	for _, pv := range b.keeps {
		of := pv.Name
		if ref := pv.Spec.ClaimRef; ref != nil {
			of += " of " + ref.Name
		}
		out = append(out, of)
	}
	if len(out) == 0 {
		return ""
	}
	slices.Sort(out)
	return "; what the disks were is kept on PersistentVolume " + strings.Join(out, ", ")
}
