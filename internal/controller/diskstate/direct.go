package diskstate

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/decide/direct"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/render"
)

// A claim can be opened directly: QEMU talks to the server that the claim's PersistentVolume names, and nothing is mounted. The
// pod names the claim all the same, which protects it as a mounted one: the claim is not deleted under the guest, and the
// scheduler keeps ReadWriteOncePod.
//
// The login is in a Secret that the PersistentVolume names, so that only an administrator decides which one is read; the
// machine says nothing that leads to a Secret. Even so this program may read no Secret of a namespace unless an administrator
// has given it the right to that very Secret. What the disk needs of it is copied to the machine's namespace for one run.

// asked returns how a volume asks for its disk to be opened.
func asked(v kubevirt.Volume) direct.Asked {
	switch said := v.AsksDirect(); {
	case said == nil:
		return direct.Unsaid
	case *said:
		return direct.Yes
	}
	return direct.No
}

// observeDirect finds out whether the disk of a bound claim is opened directly. A launcher that is there has been made one way
// or the other.
func (r *Reader) observeDirect(ctx context.Context, s *Run, v kubevirt.Volume, d *Disk) error {
	if s.Launcher != nil && StartedWithClaim(s.Launcher, v) {
		if opened, ok := launcherpod.Machine(s.Launcher).Direct[v.Name]; ok {
			d.Direct = &netdisk.Behind{Direct: opened}
		}
		return nil
	}
	if d.Claim == nil || v.Ephemeral != nil {
		return nil
	}
	if s.Launcher != nil && s.Told(v.Name) {
		if added := s.LastOrders().Network[v.Name]; added.Direct != nil {
			d.Direct = &netdisk.Behind{Direct: *added.Direct}
		}
		return nil
	}
	pv, err := r.VolumeOf(ctx, d.Claim)
	if err != nil {
		return err
	}
	if pv == nil {
		return r.observeUndecided(ctx, v, d)
	}
	class, err := r.classSays(ctx, pv.Spec.StorageClassName)
	if err != nil {
		return err
	}
	f := direct.Facts{Asked: asked(v), Block: d.Block(), Consent: consent(netdisk.Annotation(netdisk.AnnDirect, pv, class))}
	found, why := netdisk.OfVolume(pv, netdisk.Annotation(netdisk.AnnMonitors, pv, class))
	switch {
	case found != nil:
		f.Kind, f.Login = direct.Network, found.Secret != nil
	case why != "":
		f.Kind = direct.Unopenable
	default:
		why = "its volume is no iSCSI or RBD disk"
	}
	if direct.Decide(f).Direct {
		why, err = r.login(ctx, s, d, pv.Name, found)
		if err != nil {
			return err
		}
		if why != "" {
			f.Consent = direct.Refused
		}
	} else if found != nil {
		why = unfit(f)
	}
	switch plan := direct.Decide(f); {
	case plan.Reason != "":
		d.State, d.Reason, d.Why = machine.Failed, plan.Reason, fmt.Sprintf("volume %s (PersistentVolumeClaim %s): %s", v.Name, d.Claim.Name, why)
	case plan.Direct:
		d.Direct = found
		if found.ReadOnly {
			d.Mode = accessv1.ReadShared
		}
	}
	return nil
}

// consent reads the annotation of a volume or its class.
func consent(said string) direct.Consent {
	switch said {
	case "true":
		return direct.Given
	case "":
		return direct.Silent
	}
	return direct.Refused
}

// unfit says what keeps a network disk from being opened directly.
func unfit(f direct.Facts) string {
	switch {
	case !f.Block:
		return "its volumeMode is Filesystem, so its disk is a file in the volume; direct needs a claim of volumeMode Block"
	case f.Consent == direct.Refused:
		return fmt.Sprintf("an administrator has annotated the PersistentVolume or its StorageClass with %s, which is not true", netdisk.AnnDirect)
	}
	return fmt.Sprintf("an administrator allows it by annotating the PersistentVolume or its StorageClass with %s=true", netdisk.AnnDirect)
}

// classSays are the annotations of a class; none if there is no such class.
func (r *Reader) classSays(ctx context.Context, name string) (map[string]string, error) {
	if name == "" {
		return nil, nil
	}
	class, err := cluster.Get[storagev1.StorageClass](ctx, r.Cached, "", name)
	if err != nil || class == nil {
		return nil, err
	}
	return class.Annotations, nil
}

// LoginType is the type of the Secrets that logins are copied to.
const LoginType corev1.SecretType = "berth.dev/disk-login"

// login gives the disk the Secret it logs in with: the volume's own if it is in the machine's namespace, else a copy. It
// says why it cannot.
func (r *Reader) login(ctx context.Context, s *Run, d *Disk, pv string, found *netdisk.Behind) (why string, err error) {
	ref := found.Secret
	if ref == nil {
		return "", nil
	}
	if ref.Namespace == "" || ref.Namespace == s.Object.Namespace {
		netdisk.SetLogin(&found.NetworkSource, ref.Name)
		return "", nil
	}
	secret, err := cluster.Get[corev1.Secret](ctx, r.Live, ref.Namespace, ref.Name)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("an administrator has allowed it and Berth may not read the Secret that PersistentVolume %s names: "+
			"give the account berth-controller of namespace berth the right to get it, by a Role in the Secret's namespace", pv), nil
	case err != nil:
		return "", err
	case secret == nil:
		return fmt.Sprintf("the Secret that PersistentVolume %s names does not exist", pv), nil
	}
	d.Login = &corev1.Secret{Type: LoginType, Data: map[string][]byte{}, ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Object.Namespace, Name: render.LoginName(s.Object, d.Name),
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(s.Object, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))}}}
	for _, key := range found.Keys() {
		if value, ok := secret.Data[key]; ok {
			d.Login.Data[key] = value
		}
	}
	netdisk.SetLogin(&found.NetworkSource, d.Login.Name)
	return "", nil
}

// observeUndecided handles a claim that is not bound: whether it is mounted depends on its volume, so something else than the
// launcher has to bind it, if it may come to be opened directly.
func (r *Reader) observeUndecided(ctx context.Context, v kubevirt.Volume, d *Disk) error {
	if d.Claim.Spec.StorageClassName == nil || asked(v) == direct.No {
		return nil
	}
	class, err := r.classSays(ctx, *d.Claim.Spec.StorageClassName)
	d.Undecided = asked(v) == direct.Yes || class[netdisk.AnnDirect] == "true"
	if d.Undecided && d.State == machine.Unbound {
		d.State = machine.Held
	}
	return err
}

// Mounts finds other pods that have the claim. Only the access records prevent a second writer of a disk that is opened directly,
// and users' pods have no records. So the machine waits for a pod that has the claim of an exclusive disk.
func (r *Reader) Mounts(ctx context.Context, s *Run, d *Disk) error {
	if d.Direct == nil || d.State != machine.Ready || d.Access != machine.Free || d.Claim == nil || d.Mode == accessv1.ReadShared ||
		slices.Contains(d.Claim.Spec.AccessModes, corev1.ReadWriteMany) {
		return nil
	}
	var pods corev1.PodList
	users := client.MatchingFields{cacheindex.PodClaim: d.Claim.Name}
	if err := r.Cached.List(ctx, &pods, client.InNamespace(s.Object.Namespace), users); err != nil {
		return fmt.Errorf("list the pods that have a claim: %w", err)
	}
	record, err := cluster.Get[accessv1.DiskAccess](ctx, r.Cached, "", d.ID.Name())
	if err != nil {
		return err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		holds := record != nil && slices.ContainsFunc(record.Spec.Holders, func(h accessv1.Holder) bool { return h.PodUID == p.UID })
		if p.Spec.NodeName == "" || podend.Over(p) || s.own(p) || holds {
			continue
		}
		d.Access = machine.Taken
		d.Why = fmt.Sprintf("disk %s (%s) is to be opened directly, and pod %s on node %s has the claim", d.Name, d.Place(), p.Name, p.Spec.NodeName)
	}
	return nil
}

// own: the pod is one of the machine's run.
func (s *Run) own(p *corev1.Pod) bool {
	return s.Consumer != nil && p.UID == s.Consumer.UID || s.Launcher != nil && (p.UID == s.Launcher.UID || cluster.OwnedBy(p, s.Launcher.UID))
}
