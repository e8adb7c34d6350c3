package migration

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/grant"
	"github.com/berth-vm/berth/internal/controller/movestatus"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/migration"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

func (r *Reconciler) act(ctx context.Context, a migration.Action, v *Move) error {
	switch a {
	case migration.StartTarget:
		return r.startTarget(ctx, v)
	case migration.Grant:
		return r.grant(ctx, v)
	case migration.TellSource:
		limits, policy, err := r.Limits(ctx, v.Run.Object)
		if err != nil {
			return err
		}
		return r.HandOver.TellMove(ctx, v.Source, launcherapi.Move{ID: string(v.Migration.UID), Pod: v.Target.Name, Run: launcherpod.Orders(v.Source).Run, Limits: limits, Policy: policy,
			Volumes: observed.VolumeNames(launcherpod.Machine(v.Target).Spec.Volumes), Disks: sends(v.Target), Opened: launcherpod.Machine(v.Target).Opened, To: net.JoinHostPort(v.Target.Status.PodIP, strconv.Itoa(launcherapi.MovePort))})
	case migration.CallOff:
		o := launcherpod.Orders(v.Source)
		o.Cancel = true
		return r.HandOver.TellMove(ctx, v.Source, o)
	case migration.HandOver:
		return r.HandOver.HandOver(ctx, v.Target, v.Run.Object, launcherpod.Orders(v.Source))
	case migration.StopSource:
		if v.Source == nil {
			return nil
		}
		return r.Cluster.Delete(ctx, v.Source)
	case migration.StopTarget:
		return r.Cluster.Delete(ctx, v.Target)
	case migration.DropLeft:
		return r.HandOver.DropLeft(ctx, v.Migration)
	case migration.DropKeys:
		if err := r.calledOff(ctx, v); err != nil {
			return err
		}
		return r.dropKeys(ctx, v)
	case migration.LetGo:
		return r.Cluster.Mark(ctx, v.Migration, cluster.Marks{Labels: movestatus.Labels(v.Migration)})
	case migration.StartMover, migration.Hold, migration.MakeCopies, migration.Place, migration.Record, migration.StopMover:
	}
	return fmt.Errorf("%s is not an action on the migration of a guest", a)
}

// startTarget makes the pod that the guest goes to, with the machine's own constraints, on any node but the guest's, unless a volume was
// changed to a claim that is on that one; and before it keys for both. Those of the migration before were deleted before it was said to have ended; what is there is ours, from before a
// crash.
func (r *Reconciler) startTarget(ctx context.Context, v *Move) error {
	if err := r.makeKeys(ctx, v); err != nil {
		return err
	}
	if err := r.Read.PlaceCopies(ctx, v.Run); err != nil {
		return err
	}
	if err := r.Grants.CopyLogins(ctx, v.Run.Disks); err != nil {
		return err
	}
	if err := r.openCopies(ctx, v); err != nil {
		return err
	}
	home := v.Source.Spec.NodeName
	here, err := r.updatedHere(ctx, v.Run, home)
	if err != nil {
		return err
	}
	others, err := r.makeReplacements(ctx, v, here)
	if err != nil {
		return err
	}
	next := v.Run.Pods
	next.Replaced, next.Block = others, slices.Clone(next.Block)
	for _, d := range v.Run.GuestDisks()[len(v.Run.Disks):] { // it is started with what was added
		if d.Block() {
			next.Block = append(next.Block, d.Name)
		}
	}
	next.Incoming, next.From = v.Migration.UID, v.Source.Name+" "+home
	next.Servers = v.Source.Annotations[render.AnnServers]
	if !here {
		next.Away = home
	}
	pod, err := withUpdates(v.Run, next.WithoutMasters(v.Run.WholeCopies())).Pod(render.Launcher)
	if err != nil {
		return err
	}
	if here { // claims are opened on both sides, some of which could be had on other nodes too
		pod.Spec.Affinity = nodeselect.Within(pod.Spec.Affinity, OnlyOn(home))
	}
	pod.Spec.NodeSelector = movestatus.Narrowed(pod.Spec.NodeSelector, v.Migration.Spec.AddedNodeSelector)
	return r.Cluster.Create(ctx, pod)
}

// What was done about the keys of a migration.
const (
	keysMade    = "made"
	keysDropped = "dropped"
)

// Keyed remembers which migrations have keys: the controller may create and delete Secrets in users' namespaces, but not read
// them. Unknown ones are created or deleted again, which is harmless.
type Keyed struct{ Done sync.Map }

func (k *Keyed) is(m *kubevirt.VirtualMachineInstanceMigration, what string) bool {
	said, _ := k.Done.Load(m.UID)
	return said == what
}

func (k *Keyed) note(m *kubevirt.VirtualMachineInstanceMigration, what string) {
	k.Done.Store(m.UID, what)
}

func (r *Reconciler) makeKeys(ctx context.Context, v *Move) error {
	if r.Keyed.is(v.Migration, keysMade) {
		return nil
	}
	keys, err := moveKeys(v.Migration, v.Run.Object, r.Clock.Now())
	if err == nil {
		err = r.Cluster.Create(ctx, keys)
	}
	if err == nil {
		r.Keyed.note(v.Migration, keysMade)
	}
	return err
}

func (r *Reconciler) dropKeys(ctx context.Context, v *Move) error {
	if v.Run == nil || v.before != "" || r.Keyed.is(v.Migration, keysDropped) {
		return nil // they went with the instance, or are those of the migration before
	}
	err := r.Cluster.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v.Migration.Namespace, Name: render.MoveSecret(v.Run.Object)}})
	if err == nil {
		r.Keyed.note(v.Migration, keysDropped)
	}
	return err
}

// grant enters the target among the holders of the disks and tells it to get ready.
func (r *Reconciler) grant(ctx context.Context, v *Move) error {
	disks, err := r.disksAt(ctx, v)
	if err != nil {
		return err
	}
	if err := r.Grants.Take(ctx, grant.Pod{Pod: v.Target, Instance: v.Run.Object, Beside: v.Source.UID}, disks); err != nil {
		return err
	}
	if err := r.markReceiving(ctx, v); err != nil {
		return err
	}
	if err := r.ownCopies(ctx, v); err != nil {
		return err
	}
	return r.Cluster.Mark(ctx, v.Target, cluster.Marks{Annotations: map[string]string{render.AnnGo: "yes"}})
}

// moveKeysLast is longer than any migration.
const moveKeysLast = 24 * time.Hour

// moveKeys are the keys of both sides of one migration. Their authority signs nothing else and is not stored.
func moveKeys(m *kubevirt.VirtualMachineInstanceMigration, i *kubevirt.VirtualMachineInstance, now time.Time) (*corev1.Secret, error) {
	const name = "berth-move"
	authority, err := pki.New(name, now, moveKeysLast)
	if err != nil {
		return nil, err
	}
	s := &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{"ca.crt": pki.PEM(authority.Certificate().Raw)}, ObjectMeta: metav1.ObjectMeta{
		Namespace: i.Namespace, Name: render.MoveSecret(i), Labels: render.Labels(name),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(i, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))}}}
	for side, use := range map[string]x509.ExtKeyUsage{launcherapi.MoveSource: x509.ExtKeyUsageClientAuth, launcherapi.MoveTarget: x509.ExtKeyUsageServerAuth} {
		pair, err := authority.Issue(pki.Leaf{Name: name, DNSNames: []string{string(m.UID)}, Use: use, Lasts: moveKeysLast}, now)
		if err != nil {
			return nil, err
		}
		s.Data[side+".crt"], s.Data[side+".key"] = pair.Certificate, pair.Key
	}
	return s, nil
}

// Text returns the text for a row's {detail}.
func (v *Move) Text(row state.MigrationRow) string {
	switch row.Reason {
	case state.MigrationQueued:
		if v.before == "" {
			return v.crowded
		}
		return fmt.Sprintf("VirtualMachineInstanceMigration %s of the same machine has not ended", v.before)
	case state.MigrationUnplaceable, state.MigrationUnplaced:
		return observed.Unschedulable(v.Target)
	case state.MigrationRefused:
		if _, why := v.Run.Fixed(); why != "" {
			return why
		}
		return state.OfFixed(state.CauseUnlike).Text("", v.Unlike())
	case state.MigrationNoGuest:
		return "VirtualMachineInstance " + v.Migration.Spec.VMIName
	case state.MigrationKept, state.MigrationAborted:
		return v.said.Detail
	case state.MigrationTargetFailed, state.MigrationLost:
		if v.Target != nil && launcherpod.Ended(v.Target) != "" {
			return launcherpod.LastWords(v.Target).Detail
		}
		return ""
	case state.MigrationSending:
		if v.said.Total > 0 {
			return fmt.Sprintf("%d of %d MiB", v.said.Sent>>20, v.said.Total>>20)
		}
		if v.said.Detail != "" {
			return v.said.Detail
		}
	case state.MigrationDone:
		return v.doneText()
	case state.MigrationNaming:
		return strings.Join(v.unnamed, "; ")
	case state.MigrationPlacing, state.MigrationPlaced, state.MigrationPreparing, state.MigrationReady, state.MigrationHanding, state.MigrationAborting:
	case state.MigrationCopying, state.MigrationCopied, state.MigrationWritten, state.MigrationStarted, state.MigrationImmovable: // of machines that do not run
	}
	if v.Target == nil {
		return ""
	}
	return fmt.Sprintf("pod %s on node %s", v.Target.Name, v.Target.Spec.NodeName)
}

func (v *Move) doneText() string {
	text := fmt.Sprintf("it is in pod %s on node %s", v.Target.Name, v.Target.Spec.NodeName)
	if v.sent {
		if words := launcherpod.LastWords(v.Source); words.Pause > 0 {
			text += fmt.Sprintf("; it stood still for %d ms", words.Pause)
		}
	}
	return text
}

// whole reports whether the target is known to have all of the guest.
func (v *Move) whole() bool {
	at := v.situation()
	return at == migration.Holds || at == migration.Runs
}
