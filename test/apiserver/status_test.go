//go:build apiserver

package apiserver

import (
	"testing"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
)

// TestStatusLosesAnObject: a part of a status that was written before and is empty now is removed. The API server refuses the whole status if
// the part is sent as an empty object.
func TestStatusLosesAnObject(t *testing.T) {
	create(t, admin, object(`{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: status-loses, namespace: team}, spec: {domain: {devices: {}}}}`))
	w := cluster.New(admin, events.NewFakeRecorder(10), clock.RealClock{})
	for _, os := range []kubevirt.GuestOS{{ID: "debian"}, {}} {
		i := &kubevirt.VirtualMachineInstance{}
		i.Namespace, i.Name = "team", "status-loses"
		i.Status.Phase, i.Status.GuestOSInfo = kubevirt.PhaseRunning, &os
		if err := w.ApplyStatus(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		var now kubevirt.VirtualMachineInstance
		must(t, admin.Get(t.Context(), client.ObjectKeyFromObject(i), &now))
		if (now.Status.GuestOSInfo != nil) != (os.ID != "") || now.Status.Phase != kubevirt.PhaseRunning {
			t.Errorf("with %+v the status is %+v", os, now.Status)
		}
	}
}
