package restore

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/controller/worker"
	"github.com/berth-vm/berth/internal/decide/snapshot"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

// A restore in place makes every volume first, under a name of its own: in a staged claim. docs/decisions/0028 says why.

const (
	// labelStaged on a staged claim is the UID of its restore.
	labelStaged = "berth.dev/staged-for"
	// labelNoBackup keeps a claim out of backups, which have no use for one that is only there for a while.
	labelNoBackup = "velero.io/exclude-from-backup"
	// annPlaced on a staged claim is when a node was last chosen for it.
	annPlaced = "berth.dev/placed"
)

// placeAgain is how long a node that the provisioner refused is left alone.
const placeAgain = 15 * time.Second

// stagedClaim is the part of a restoredClaim that exists only during its restore.
type stagedClaim struct {
	claim  *corev1.PersistentVolumeClaim // nil: there is none
	class  *storagev1.StorageClass       // nil: there is none
	volume *corev1.PersistentVolume      // that the staged claim names; nil: there is none
	named  *corev1.PersistentVolume      // that the claim names which was made in the place of the old one; nil: there is none
	says   string                        // what the storage says of a claim that it does not make a volume for
	users  []string                      // users of the claim that will be replaced
}

// inPlace reports whether claims are replaced, instead of made for a machine that has none.
func (b *observed) inPlace() bool {
	return b.data != nil && b.data.Content != nil && !b.elsewhere()
}

// stagedName returns the claim that the volume of a part is made in.
func (b *observed) stagedName(c restoredClaim) string { return b.stagedPrefix() + c.Volume }

func (b *observed) stagedPrefix() string { return fmt.Sprintf("restore-%s-", b.of.UID) }

// mine reports whether this restore staged the claim. Anyone may write labels and annotations, so the name, which has the
// restore's UID, decides.
func (b *observed) mine(c *corev1.PersistentVolumeClaim) bool {
	return strings.HasPrefix(c.Name, b.stagedPrefix()) && c.Labels[labelStaged] == string(b.of.UID) && c.Annotations[snapshotcontent.AnnRestore] == string(b.of.UID)
}

// stage returns a staged claim: as it was, but for its name and whose it is.
func (b *observed) stage(c restoredClaim, node string) *corev1.PersistentVolumeClaim {
	out := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.of.Namespace, Name: b.stagedName(c),
			Labels:      map[string]string{labelStaged: string(b.of.UID), labelNoBackup: "true"},
			Annotations: map[string]string{snapshotcontent.AnnRestore: string(b.of.UID)},
		},
		Spec: *c.Claim.Spec.DeepCopy(),
	}
	if node != "" {
		out.Annotations[names.SelectedNode], out.Annotations[annPlaced] = node, b.now.UTC().Format(time.RFC3339)
	}
	out.Spec.VolumeName, out.Spec.Selector, out.Spec.DataSource = "", nil, nil
	out.Spec.DataSourceRef = snapshotRef(c.Part)
	return out
}

// snapshotRef returns the VolumeSnapshot of a part as the source of a claim.
func snapshotRef(p snapshotcontent.Part) *corev1.TypedObjectReference {
	source := volumesnapshot.Source(p.Name)
	return &corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
}

// observeStaged reads the state of the volume that replaces the claim's.
func (r *Reconciler) observeStaged(ctx context.Context, b *observed, c *restoredClaim) error {
	var err error
	if c.staged.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, b.of.Namespace, b.stagedName(*c)); err != nil {
		return err
	}
	if class := ptr.Deref(c.Claim.Spec.StorageClassName, ""); class != "" {
		if c.staged.class, err = cluster.Get[storagev1.StorageClass](ctx, r.live, "", class); err != nil {
			return err
		}
	}
	if c.staged.volume, err = r.volumeOf(ctx, c.staged.claim); err != nil {
		return err
	}
	if b.ours(c.now) {
		if c.staged.named, err = r.volumeOf(ctx, c.now); err != nil {
			return err
		}
	}
	if s := c.staged.claim; s != nil && s.Status.Phase != corev1.ClaimBound && !b.given(*c) {
		c.staged.says = worker.Trouble(ctx, r.live, s, b.now)
	}
	return nil
}

// volumeOf returns the volume that a claim names; nil: there is none.
func (r *Reconciler) volumeOf(ctx context.Context, c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if c == nil || c.Spec.VolumeName == "" {
		return nil, nil
	}
	return cluster.Get[corev1.PersistentVolume](ctx, r.live, "", c.Spec.VolumeName)
}

// ours reports whether the claim has the name of one of the machine's and was made by this restore.
func (b *observed) ours(c *corev1.PersistentVolumeClaim) bool {
	return c != nil && c.Annotations[snapshotcontent.AnnRestore] == string(b.of.UID)
}

// given reports whether the claim was made by this restore, and the volume that it names is its own.
func (b *observed) given(c restoredClaim) bool {
	return b.ours(c.now) && belongsTo(c.staged.named, c.now)
}

// belongsTo reports whether the volume is bound to the claim, or reserved for it. A claim that names a volume proves nothing.
func belongsTo(pv *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	return pv != nil && c != nil && c.Spec.VolumeName == pv.Name && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == c.UID
}

// volumes returns the worst of all; There < Unbound < Troubled < Unplaced < Unmade < Blocked.
func (b *observed) volumes() snapshot.Volumes {
	worst := snapshot.There
	for _, c := range b.claims {
		worst = max(worst, b.volumeSituation(c))
	}
	return worst
}

func (b *observed) volumeSituation(c restoredClaim) snapshot.Volumes {
	s := c.staged.claim
	switch {
	case !b.inPlace(), b.ours(c.now) && (c.now.Status.Phase == corev1.ClaimBound || c.now.Spec.VolumeName == ""), b.given(c):
		return snapshot.There // it needs no staged claim, or no longer
	case s != nil && !b.mine(s):
		return snapshot.Blocked
	case s != nil && s.Status.Phase == corev1.ClaimBound && belongsTo(c.staged.volume, s):
		return snapshot.There
	case s != nil && s.DeletionTimestamp != nil:
		return snapshot.Unbound
	case c.staged.class == nil:
		return snapshot.Blocked
	case s == nil, s.Status.Phase == corev1.ClaimLost:
		return snapshot.Unmade
	case b.unplaced(c):
		return snapshot.Unplaced
	case c.staged.says != "":
		return snapshot.Troubled
	}
	return snapshot.Unbound
}

// unplaced reports whether the class makes volumes on the node that is chosen for them, and none is: there was none, or the
// provisioner refused it by taking the choice back.
func (b *observed) unplaced(c restoredClaim) bool {
	s := c.staged.claim
	if !claim.Waits(c.staged.class) || s.Spec.VolumeName != "" || s.Annotations[names.SelectedNode] != "" {
		return false
	}
	last, err := time.Parse(time.RFC3339, s.Annotations[annPlaced])
	return err != nil || !b.now.Before(last.Add(placeAgain))
}

// blocked returns why the volume of a claim does not exist yet, from events; "" if it exists or the reason is unknown.
func (b *observed) blocked(c restoredClaim) string {
	s := c.staged.claim
	switch b.volumeSituation(c) {
	case snapshot.Blocked:
		if s != nil && !b.mine(s) {
			return fmt.Sprintf("PersistentVolumeClaim %s is not this restore's: delete it", s.Name)
		}
		return fmt.Sprintf("StorageClass %q of PersistentVolumeClaim %s does not exist", ptr.Deref(c.Claim.Spec.StorageClassName, ""), c.to)
	case snapshot.Unplaced, snapshot.Unbound, snapshot.Troubled:
		if c.staged.says != "" {
			return fmt.Sprintf("PersistentVolumeClaim %s for %s: %s", s.Name, c.to, c.staged.says)
		}
		if b.volumeSituation(c) == snapshot.Unplaced {
			return fmt.Sprintf("PersistentVolumeClaim %s for %s: its class needs a node, and none is found or the provisioner refused it", s.Name, c.to)
		}
	case snapshot.There, snapshot.Unmade:
	}
	return ""
}

// makeVolumes makes the missing staged claims. A refusal of the API server is reported and retried.
func (r *Reconciler) makeVolumes(ctx context.Context, b *observed) error {
	for _, c := range b.claims {
		if b.volumeSituation(c) != snapshot.Unmade {
			continue
		}
		if s := c.staged.claim; s != nil { // its volume is gone
			if err := r.cluster.Delete(ctx, s); err != nil {
				return err
			}
			continue
		}
		node, err := r.nodeFor(ctx, b, c)
		if err != nil {
			return err
		}
		made := b.stage(c, node)
		switch err := r.cluster.Create(ctx, made); {
		case refusal(err) != "":
			b.denied = fmt.Sprintf("PersistentVolumeClaim %s for %s is refused: %s", made.Name, c.to, refusal(err))
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// refusal returns what the API server, a quota, a LimitRange or a webhook says of an object that it does not take; empty: that is
// not why.
func refusal(err error) string {
	if text, quota := cluster.ExceededQuota(err); quota {
		return text + "; until a restore is complete there has to be room for the disks as they are and as they were"
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return err.Error()
	}
	return ""
}

// placeVolumes chooses a node for the staged claims that need one.
func (r *Reconciler) placeVolumes(ctx context.Context, b *observed) error {
	for _, c := range b.claims {
		if b.volumeSituation(c) != snapshot.Unplaced {
			continue
		}
		node, err := r.nodeFor(ctx, b, c)
		if err != nil {
			return err
		}
		if node == "" {
			continue
		}
		next := c.staged.claim.DeepCopy()
		next.Annotations[names.SelectedNode], next.Annotations[annPlaced] = node, b.now.UTC().Format(time.RFC3339)
		if err := r.cluster.Change(ctx, c.staged.claim, next); err != nil {
			return err
		}
	}
	return nil
}

// dropStaged deletes the staged claims, by the UID of the restore, also if the snapshot no longer exists.
func (r *Reconciler) dropStaged(ctx context.Context, b *observed) error {
	var list corev1.PersistentVolumeClaimList
	err := r.live.List(ctx, &list, client.InNamespace(b.of.Namespace), client.MatchingLabels{labelStaged: string(b.of.UID)})
	if err != nil {
		return fmt.Errorf("list the staged claims of restore %s: %w", b.of.Name, err)
	}
	for i := range list.Items {
		if c := &list.Items[i]; b.mine(c) {
			if err := r.cluster.Delete(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}
