package machine

import (
	"context"
	"errors"
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
	"github.com/berth-vm/berth/internal/state"
)

// A claim can be opened directly: QEMU talks to the server that the claim's PersistentVolume names, and nothing is mounted. The
// pod names the claim all the same, which protects it as a mounted one: the claim is not deleted under the guest, and the
// scheduler keeps ReadWriteOncePod.
//
// The login is in a Secret that the PersistentVolume names, so that only an administrator decides which one is read; the
// machine says nothing that leads to a Secret. Even so this program may read no Secret of a namespace unless an administrator
// has given it the right to that very Secret. What the disk needs of it is copied to the machine's namespace for one run.

// asked is what a volume says about its way to its disk.
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
func (r *Reconciler) observeDirect(ctx context.Context, s *base, v kubevirt.Volume, d *disk) error {
	if s.launcher != nil && coldVolume(s.launcher, v) {
		if opened, ok := launcherpod.Machine(s.launcher).Direct[v.Name]; ok {
			d.direct = &netdisk.Behind{Direct: opened}
		}
		return nil
	}
	if d.claim == nil || v.Ephemeral != nil {
		return nil
	}
	if s.launcher != nil && s.told(v.Name) {
		if added := s.lastOrders().Network[v.Name]; added.Direct != nil {
			d.direct = &netdisk.Behind{Direct: *added.Direct}
		}
		return nil
	}
	pv, err := r.volumeOf(ctx, d.claim)
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
	f := direct.Facts{Asked: asked(v), Block: d.block(), Consent: consent(netdisk.Annotation(netdisk.AnnDirect, pv, class))}
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
		d.is, d.reason, d.why = machine.Failed, plan.Reason, fmt.Sprintf("volume %s (PersistentVolumeClaim %s): %s", v.Name, d.claim.Name, why)
	case plan.Direct:
		d.direct = found
		if found.ReadOnly {
			d.mode = accessv1.ReadShared
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
func (r *Reconciler) classSays(ctx context.Context, name string) (map[string]string, error) {
	if name == "" {
		return nil, nil
	}
	class, err := cluster.Get[storagev1.StorageClass](ctx, r.reader, "", name)
	if err != nil || class == nil {
		return nil, err
	}
	return class.Annotations, nil
}

// LoginType is the type of the Secrets that logins are copied to.
const LoginType corev1.SecretType = "berth.dev/disk-login"

// login gives the disk the Secret it logs in with: the volume's own if it is in the machine's namespace, else a copy. It
// says why it cannot.
func (r *Reconciler) login(ctx context.Context, s *base, d *disk, pv string, found *netdisk.Behind) (why string, err error) {
	ref := found.Secret
	if ref == nil {
		return "", nil
	}
	if ref.Namespace == "" || ref.Namespace == s.instance.Namespace {
		netdisk.SetLogin(&found.NetworkSource, ref.Name)
		return "", nil
	}
	secret, err := cluster.Get[corev1.Secret](ctx, r.live, ref.Namespace, ref.Name)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("an administrator has allowed it and Berth may not read the Secret that PersistentVolume %s names: "+
			"give the account berth-controller of namespace berth the right to get it, by a Role in the Secret's namespace", pv), nil
	case err != nil:
		return "", err
	case secret == nil:
		return fmt.Sprintf("the Secret that PersistentVolume %s names does not exist", pv), nil
	}
	d.login = &corev1.Secret{Type: LoginType, Data: map[string][]byte{}, ObjectMeta: metav1.ObjectMeta{
		Namespace: s.instance.Namespace, Name: render.LoginName(s.instance, d.name),
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(s.instance, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))}}}
	for _, key := range found.Keys() {
		if value, ok := secret.Data[key]; ok {
			d.login.Data[key] = value
		}
	}
	netdisk.SetLogin(&found.NetworkSource, d.login.Name)
	return "", nil
}

// lend copies the logins of disks to the machine's namespace, where the launcher's pod mounts them. What is there under that
// name is of an earlier try.
func (r *Reconciler) lend(ctx context.Context, disks []disk) error {
	for _, d := range disks {
		if d.undecided {
			return fmt.Errorf("volume %s: %w", d.name, errUndecided)
		}
		if d.login == nil {
			continue
		}
		if err := r.cluster.Replace(ctx, d.login); err != nil {
			return err
		}
	}
	return nil
}

// observeUndecided is about a claim that is not bound: whether it is mounted depends on its volume, so something else than the
// launcher has to bind it, if it may come to be opened directly.
func (r *Reconciler) observeUndecided(ctx context.Context, v kubevirt.Volume, d *disk) error {
	if d.claim.Spec.StorageClassName == nil || asked(v) == direct.No {
		return nil
	}
	class, err := r.classSays(ctx, *d.claim.Spec.StorageClassName)
	d.undecided = asked(v) == direct.Yes || class[netdisk.AnnDirect] == "true"
	if d.undecided && d.is == machine.Unbound {
		d.is = machine.Held
	}
	return err
}

// errUndecided: the claim is about to be bound.
var errUndecided = errors.New("whether a disk is mounted is known when its claim is bound")

// observeMounts: nothing but the records stops a writer beside a disk that is opened directly, and pods that are no machines
// have none. A pod that has the claim of a disk that only one may have keeps the machine waiting.
func (r *Reconciler) observeMounts(ctx context.Context, s *base, d *disk) error {
	if d.direct == nil || d.is != machine.Ready || d.access != machine.Free || d.claim == nil || d.mode == accessv1.ReadShared ||
		slices.Contains(d.claim.Spec.AccessModes, corev1.ReadWriteMany) {
		return nil
	}
	var pods corev1.PodList
	users := client.MatchingFields{cacheindex.PodClaim: d.claim.Name}
	if err := r.reader.List(ctx, &pods, client.InNamespace(s.instance.Namespace), users); err != nil {
		return fmt.Errorf("list the pods that have a claim: %w", err)
	}
	record, err := cluster.Get[accessv1.DiskAccess](ctx, r.reader, "", d.id.Name())
	if err != nil {
		return err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		holds := record != nil && slices.ContainsFunc(record.Spec.Holders, func(h accessv1.Holder) bool { return h.PodUID == p.UID })
		if p.Spec.NodeName == "" || podend.Over(p) || s.own(p) || holds {
			continue
		}
		d.access = machine.Taken
		d.why = fmt.Sprintf("disk %s (%s) is to be opened directly, and pod %s on node %s has the claim", d.name, d.place(), p.Name, p.Spec.NodeName)
	}
	return nil
}

// own: the pod is one of the machine's run.
func (s *base) own(p *corev1.Pod) bool {
	return s.consumer != nil && p.UID == s.consumer.UID || s.launcher != nil && (p.UID == s.launcher.UID || cluster.OwnedBy(p, s.launcher.UID))
}

// unallowed: a disk waits for an administrator, who does not tell us.
func (s *run) unallowed() bool {
	return slices.ContainsFunc(s.disks, func(d disk) bool { return d.reason == state.DirectForbidden || d.reason == state.DirectImpossible })
}
