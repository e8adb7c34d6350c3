package populate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestSourceDeletedMeanwhile: a claim that is being imported is completed although its VolumeImportSource is deleted, also if another try is needed, and also if
// the claim itself is filled. One that was not begun waits for its source, whatever is noted on it.
func TestSourceDeletedMeanwhile(t *testing.T) {
	forged := from("VolumeImportSource", "")
	forged.Annotations = map[string]string{annImport: `{"source":{"http":{"url":"http://elsewhere/disk.img"}}}`}
	for name, row := range map[string]struct {
		target   *corev1.PersistentVolumeClaim
		ignorant bool
		steps    int // before the source is deleted
		said     state.Reason
	}{
		"while it is filled":           {from("VolumeImportSource", ""), false, 5, state.PopulationDone},
		"while it is filled in place":  {from("VolumeImportSource", ""), true, 5, state.PopulationDone},
		"before it was begun":          {from("VolumeImportSource", ""), false, 0, state.SourceAbsent},
		"before it was begun, as said": {forged, false, 0, state.SourceAbsent},
	} {
		t.Run(name, func(t *testing.T) {
			w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), importing(), row.target}, Ignorant: row.ignorant,
				Reports: []task.Report{filltest.Retry(), filltest.Done()}})
			r := build(w)
			for range row.steps {
				_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(row.target)})
				w.Must(err)
				w.Turn()
			}
			w.Must(w.API.Delete(t.Context(), importing()))
			if row.steps > 0 && w.Tries > 1 {
				t.Fatalf("%d tries have ended already", w.Tries)
			}
			w.Run(row.target.Name, r)
			c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, row.target.Name)
			if said := c.Annotations[cluster.AnnState]; said != string(row.said) {
				t.Errorf("it says %s, want %s", said, row.said)
			}
			if row.steps > 0 && w.Tries != 2 {
				t.Errorf("%d tries, want 2", w.Tries)
			}
			if _, left := c.Annotations[annImport]; left && row.said == state.PopulationDone {
				t.Error("what it was imported from is still noted")
			}
		})
	}
}
