package datavolume

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestDeletedVolumeLeavesNothingElsewhere: what a clone has in its source's namespace cannot be owned by the volume; it
// must be gone before the volume is.
func TestDeletedVolumeLeavesNothingElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		volume *cdiv1.DataVolume
		source []client.Object
	}{
		"of a claim":        {cloneOf("images"), []client.Object{filltest.Bound("images", "golden")}},
		"of a claim in use": {cloneOf("images"), append(filltest.Driver(), filltest.Bound("images", "golden"), user("images"))},
		"of a snapshot":     {restoreOf("images"), snapshotOn("images", "", corev1.PersistentVolumeFilesystem)},
	} {
		t.Run(name, func(t *testing.T) {
			w := filltest.New(t, filltest.Scene{Objects: append(c.source, filltest.Class(filltest.AtOnce), c.volume)})
			ctx, controller := context.Background(), build(w)
			step := func() {
				_, err := controller.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: filltest.Team, Name: volumeName}})
				w.Must(err)
			}
			server := func() *corev1.Pod { return filltest.Get[corev1.Pod](w, "images", "volume-uid-source-pod") }
			for range 10 {
				step()
				if server() != nil {
					break
				}
				w.Turn()
			}
			if server() == nil {
				t.Fatal("no server was started")
			}
			w.Must(w.API.Delete(ctx, volumeIn(w)))
			if volumeIn(w) == nil {
				t.Fatal("the volume is gone before its server")
			}
			step()
			w.Turn() // the server ends
			if left := w.Left(); strings.Contains(fmt.Sprint(left), "volume-uid") || left["secrets"] != 0 || volumeIn(w) != nil {
				t.Errorf("left: %v, volume %v", left, volumeIn(w) != nil)
			}
		})
	}
}
