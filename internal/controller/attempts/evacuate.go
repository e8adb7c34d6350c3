package attempts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/evacuation"
	"github.com/berth-vm/berth/internal/render"
)

// Make makes the next try, with the labels and annotations of what it is for.
func (r *Maker) Make(ctx context.Context, s *diskstate.Run, t Tries, with metav1.ObjectMeta) error {
	for _, old := range t.surplus {
		if err := r.Cluster.Delete(ctx, old); err != nil {
			return err
		}
	}
	with.Namespace, with.Name = s.Object.Namespace, t.next
	metav1.SetMetaDataLabel(&with, kubevirt.LabelMigrated, s.Object.Name)
	with.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.Object, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))}
	return r.Cluster.Create(ctx, &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: with, Spec: kubevirt.MigrationSpec{VMIName: s.Object.Name}})
}

// Tries are the migrations of a guest that were made for one purpose, and the next.
type Tries struct {
	Moves   evacuation.Moves
	next    string        // the name of the next
	Due     time.Duration // until the next; 0: at once
	Text    string
	surplus []*kubevirt.VirtualMachineInstanceMigration // that ended long ago
}

const (
	// Evacuations are the first letters of the names of migrations that are made for a drain.
	Evacuations = "kubevirt-evacuation-"
	// evacuateFirst and evacuateLast are how long to wait after a failure, the first time and at most.
	first = 10 * time.Second
	// Last is the longest pause.
	Last = 5 * time.Minute
	// Kept is how many finished migrations are kept for people to inspect, as upstream does.
	Kept = 5
)

// Of looks at the migrations of an instance. Those from the launcher that it is in now are counted: each has the launcher and a
// number in its name, so one that was made just before a crash is not made twice.
func (r *Maker) Of(s *diskstate.Run, all []kubevirt.VirtualMachineInstanceMigration, purpose string) Tries {
	if s.Launcher == nil {
		return Tries{}
	}
	uid := string(s.Launcher.UID)
	prefix := purpose + uid[:min(8, len(uid))] + "-"
	t := Tries{Text: "it is about to be"}
	slices.SortFunc(all, func(a, b kubevirt.VirtualMachineInstanceMigration) int {
		if observed.Earlier(&a, &b) {
			return -1
		}
		return 1
	})
	taken, failed := map[string]bool{}, 0
	var ended []*kubevirt.VirtualMachineInstanceMigration
	for i := range all {
		m := &all[i]
		taken[m.Name] = true
		switch {
		case !m.Ended():
			t.Moves, t.Text = evacuation.Moving, fmt.Sprintf("VirtualMachineInstanceMigration %s is %s", m.Name, cmp.Or(m.Status.Phase, kubevirt.MigrationPending))
			continue
		case strings.HasPrefix(m.Name, purpose) && cluster.OwnedBy(m, s.Object.UID):
			ended = append(ended, m)
		}
		if at := m.Status.MigrationState; strings.HasPrefix(m.Name, prefix) && at != nil && at.Failed && at.EndTimestamp != nil {
			failed++
			t.Due = at.EndTimestamp.Add(pause(failed)).Sub(r.Clock.Now())
			t.Text = fmt.Sprintf("VirtualMachineInstanceMigration %s: %s", m.Name, at.FailureReason)
		}
	}
	for n := 0; t.next == ""; n++ {
		if name := fmt.Sprintf("%s%d", prefix, n); !taken[name] {
			t.next = name
		}
	}
	if extra := len(ended) - Kept + 1; extra > 0 {
		t.surplus = ended[:extra]
	}
	if until, err := time.Parse(time.RFC3339, s.Launcher.Annotations[render.AnnStay]); err == nil && purpose == Evacuations {
		if left := until.Add(Last).Sub(r.Clock.Now()); left > t.Due {
			t.Due, t.Text = left, fmt.Sprintf("somebody cancelled its migration at %s, and it is not moved before %s; end the drain if it is to stay",
				until.Format(time.TimeOnly), until.Add(Last).Format(time.TimeOnly))
		}
	}
	if t.Moves == evacuation.Moving || t.Due <= 0 {
		t.Due = 0
	} else {
		t.Moves = evacuation.Resting
	}
	return t
}

// KeepHere withdraws the request that a launcher's guest leaves its node.
func (r *Maker) KeepHere(ctx context.Context, launcher *corev1.Pod) (*corev1.Pod, error) {
	next := launcher.DeepCopy()
	delete(next.Annotations, render.AnnEvacuate)
	next.Annotations[render.AnnStay] = r.Clock.Now().UTC().Format(time.RFC3339)
	return next, r.Cluster.Change(ctx, launcher, next)
}

// pause returns how long to wait after this number of failures.
func pause(failed int) time.Duration {
	return min(first<<min(failed-1, 10), Last)
}
