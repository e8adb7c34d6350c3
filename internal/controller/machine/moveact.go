package machine

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
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/decide/migration"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

func (r *Reconciler) actMigration(ctx context.Context, a migration.Action, v *move) error {
	switch a {
	case migration.StartTarget:
		return r.startTarget(ctx, v)
	case migration.Grant:
		return r.grant(ctx, v)
	case migration.TellSource:
		limits, policy, err := r.moveLimits(ctx, v.run.instance)
		if err != nil {
			return err
		}
		return r.tellMove(ctx, v.source, launcherapi.Move{ID: string(v.migration.UID), Pod: v.target.Name, Run: launcherpod.Orders(v.source).Run, Limits: limits, Policy: policy,
			Volumes: volumeNames(launcherpod.Machine(v.target).Spec.Volumes), Disks: sends(v.target), To: net.JoinHostPort(v.target.Status.PodIP, strconv.Itoa(launcherapi.MovePort))})
	case migration.CallOff:
		o := launcherpod.Orders(v.source)
		o.Cancel = true
		return r.tellMove(ctx, v.source, o)
	case migration.HandOver:
		return r.handOver(ctx, v.target, v.run.instance, launcherpod.Orders(v.source))
	case migration.StopSource:
		if v.source == nil {
			return nil
		}
		return r.cluster.Delete(ctx, v.source)
	case migration.StopTarget:
		return r.cluster.Delete(ctx, v.target)
	case migration.DropLeft:
		return r.dropLeft(ctx, v.migration)
	case migration.DropKeys:
		if err := r.calledOff(ctx, v); err != nil {
			return err
		}
		return r.dropKeys(ctx, v)
	case migration.LetGo:
		return r.cluster.Mark(ctx, v.migration, cluster.Marks{})
	case migration.StartMover, migration.Hold, migration.MakeCopies, migration.Place, migration.Record, migration.StopMover:
	}
	return fmt.Errorf("%s is not an action on the migration of a guest", a)
}

// startTarget makes the pod that the guest goes to, with the machine's own constraints, on any node but the guest's, unless a volume was
// changed to a claim that is on that one; and before it keys for both. Those of the migration before were deleted before it was said to have ended; what is there is ours, from before a
// crash.
func (r *Reconciler) startTarget(ctx context.Context, v *move) error {
	if err := r.makeKeys(ctx, v); err != nil {
		return err
	}
	if err := r.placeCopies(ctx, v.run); err != nil {
		return err
	}
	if err := r.lend(ctx, v.run.disks); err != nil {
		return err
	}
	home := v.source.Spec.NodeName
	here, err := r.updatedHere(ctx, v.run, home)
	if err != nil {
		return err
	}
	others, err := r.makeReplacements(ctx, v, here)
	if err != nil {
		return err
	}
	next := v.run.pods
	next.Replaced, next.Block = others, slices.Clone(next.Block)
	for _, d := range v.run.guestDisks()[len(v.run.disks):] { // it is started with what was added
		if d.block() {
			next.Block = append(next.Block, d.name)
		}
	}
	next.Incoming, next.From = v.migration.UID, v.source.Name+" "+home
	next.Servers = v.source.Annotations[render.AnnServers]
	if !here {
		next.Away = home
	}
	pod, err := v.run.withUpdates(next).Pod(render.Launcher)
	if err != nil {
		return err
	}
	if here { // claims are opened on both sides, some of which could be had on other nodes too
		pod.Spec.Affinity = nodeselect.Within(pod.Spec.Affinity, onlyOn(home))
	}
	pod.Spec.NodeSelector = narrowed(pod.Spec.NodeSelector, v.migration.Spec.AddedNodeSelector)
	return r.cluster.Create(ctx, pod)
}

// What was done about the keys of a migration.
const (
	keysMade    = "made"
	keysDropped = "dropped"
)

// keyed is what this process remembers of the keys of migrations: we may make and delete Secrets of users' namespaces, not look whether
// they are there. What it does not know is done again, which harms nobody.
type keyed struct{ done sync.Map }

func (k *keyed) is(m *kubevirt.VirtualMachineInstanceMigration, what string) bool {
	said, _ := k.done.Load(m.UID)
	return said == what
}

func (k *keyed) note(m *kubevirt.VirtualMachineInstanceMigration, what string) {
	k.done.Store(m.UID, what)
}

func (r *Reconciler) makeKeys(ctx context.Context, v *move) error {
	if r.keyed.is(v.migration, keysMade) {
		return nil
	}
	keys, err := moveKeys(v.migration, v.run.instance, r.clock.Now())
	if err == nil {
		err = r.cluster.Create(ctx, keys)
	}
	if err == nil {
		r.keyed.note(v.migration, keysMade)
	}
	return err
}

func (r *Reconciler) dropKeys(ctx context.Context, v *move) error {
	if v.run == nil || v.before != "" || r.keyed.is(v.migration, keysDropped) {
		return nil // they went with the instance, or are those of the migration before
	}
	err := r.cluster.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v.migration.Namespace, Name: render.MoveSecret(v.run.instance)}})
	if err == nil {
		r.keyed.note(v.migration, keysDropped)
	}
	return err
}

// grant enters the target among the holders of the disks and tells it to get ready.
func (r *Reconciler) grant(ctx context.Context, v *move) error {
	disks, err := r.disksAt(ctx, v)
	if err != nil {
		return err
	}
	if err := r.take(ctx, taker{pod: v.target, instance: v.run.instance, beside: v.source.UID}, disks); err != nil {
		return err
	}
	if err := r.markReceiving(ctx, v); err != nil {
		return err
	}
	return r.cluster.Mark(ctx, v.target, cluster.Marks{Annotations: map[string]string{render.AnnGo: "yes"}})
}

// moveKeysLast is longer than any migration.
const moveKeysLast = 24 * time.Hour

// moveKeys are the keys of both sides of one migration. Their authority signs nothing else and is kept nowhere.
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

// text is what a row's {detail} stands for.
func (v *move) text(row state.MigrationRow) string {
	switch row.Reason {
	case state.MigrationQueued:
		if v.before == "" {
			return v.crowded
		}
		return fmt.Sprintf("VirtualMachineInstanceMigration %s of the same machine has not ended", v.before)
	case state.MigrationUnplaceable, state.MigrationUnplaced:
		return unschedulable(v.target)
	case state.MigrationRefused:
		if _, why := v.run.fixed(); why != "" {
			return why
		}
		return state.OfFixed(state.CauseUnlike).Text("", v.unlike())
	case state.MigrationNoGuest:
		return "VirtualMachineInstance " + v.migration.Spec.VMIName
	case state.MigrationKept, state.MigrationAborted:
		return v.said.Detail
	case state.MigrationTargetFailed, state.MigrationLost:
		if v.target != nil && launcherpod.Ended(v.target) != "" {
			return launcherpod.LastWords(v.target).Detail
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
	if v.target == nil {
		return ""
	}
	return fmt.Sprintf("pod %s on node %s", v.target.Name, v.target.Spec.NodeName)
}

func (v *move) doneText() string {
	text := fmt.Sprintf("it is in pod %s on node %s", v.target.Name, v.target.Spec.NodeName)
	if v.sent {
		if words := launcherpod.LastWords(v.source); words.Pause > 0 {
			text += fmt.Sprintf("; it stood still for %d ms", words.Pause)
		}
	}
	return text
}

// moved is a migration as its status shows it.
type moved struct {
	migration *kubevirt.VirtualMachineInstanceMigration
	source    *corev1.Pod        // nil: there is none
	target    *corev1.Pod        // nil: there is none
	said      launcherapi.Moving // by the source
	begun     bool               // the source was told to send its guest
	whole     bool               // the target is known to have all of the guest
}

// reportMigration writes the status of a migration.
func (r *Reconciler) reportMigration(ctx context.Context, v moved, row state.MigrationRow, detail string) error {
	old := v.migration.Status
	text := row.Text(detail)
	succeeded, failed := row.Phase == kubevirt.MigrationSucceeded, row.Phase == kubevirt.MigrationFailed
	next := kubevirt.MigrationStatus{Phase: row.Phase, PhaseTransitionTimestamps: old.PhaseTransitionTimestamps, MigrationState: v.state(old.MigrationState),
		Conditions: r.conditions(old.Conditions, kubevirt.Condition{Type: "Ready", Status: truth(succeeded), Reason: string(row.Reason), Message: text})}
	if next.SentBytes, next.TotalBytes = old.SentBytes, old.TotalBytes; v.said.Total > 0 {
		next.SentBytes, next.TotalBytes = v.said.Sent, v.said.Total
	}
	now := metav1.NewTime(r.clock.Now())
	if row.Phase != old.Phase {
		next.PhaseTransitionTimestamps = append(next.PhaseTransitionTimestamps,
			kubevirt.MigrationPhaseTransition{Phase: row.Phase, PhaseTransitionTimestamp: now})
	}
	at := next.MigrationState
	if v.begun && at.StartTimestamp == nil {
		at.StartTimestamp = &now
	}
	if at.TargetNodeDomainReadyTimestamp == nil && (succeeded || v.whole) {
		at.TargetNodeDomainReadyTimestamp, at.TargetNodeDomainDetected = &now, true
	}
	if v.migration.DeletionTimestamp != nil {
		at.AbortRequested, at.AbortStatus = true, kubevirt.AbortInProgress
	}
	if succeeded || failed {
		at.EndTimestamp, at.Completed, at.Failed = &now, true, failed
		if failed {
			at.FailureReason = text
		}
		if at.AbortRequested {
			at.AbortStatus = map[bool]kubevirt.MigrationAbortStatus{true: kubevirt.AbortSucceeded, false: kubevirt.AbortFailed}[failed]
		}
	}
	said := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: objectNamed(&v.migration.ObjectMeta), Status: next}
	if equality.Semantic.DeepEqual(old, next) {
		return nil
	}
	if err := r.cluster.ApplyStatus(ctx, said); err != nil {
		return err
	}
	if reasonOf(old.Conditions) != reasonOf(next.Conditions) {
		kind := corev1.EventTypeNormal
		if row.Warn {
			kind = corev1.EventTypeWarning
		}
		r.cluster.Event(v.migration, kind, string(row.Reason), text)
	}
	return nil
}

// state is the migration as its instance shows it, so far.
func (v moved) state(old *kubevirt.MigrationState) *kubevirt.MigrationState {
	s := &kubevirt.MigrationState{}
	if old != nil {
		s = old.DeepCopy()
	}
	s.MigrationUID, s.Mode = v.migration.UID, kubevirt.PreCopy
	if p := v.source; p != nil {
		s.SourcePod, s.SourceNode = p.Name, p.Spec.NodeName
	}
	if p := v.target; p != nil {
		if pod, node, ok := strings.Cut(p.Annotations[render.AnnFrom], " "); ok { // the source may be gone
			s.SourcePod, s.SourceNode = pod, node
		}
		s.TargetPod, s.TargetNode, s.TargetNodeAddress = p.Name, p.Spec.NodeName, p.Status.PodIP
	}
	for _, p := range []*corev1.Pod{v.source, v.target} {
		if o := launcherpod.Orders(p); o.ID == string(v.migration.UID) && o.Limits != (launcherapi.MoveLimits{}) {
			s.MigrationConfiguration, s.MigrationPolicyName = configuration(o.Limits), nil
			if o.Policy != "" {
				s.MigrationPolicyName = &o.Policy
			}
		}
	}
	return s
}

// whole reports whether the target is known to have all of the guest.
func (v *move) whole() bool {
	at := v.situation()
	return at == migration.Holds || at == migration.Runs
}
