//go:build apiserver

package apiserver

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllers "sigs.k8s.io/controller-runtime/pkg/config"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/datasource"
)

// startDataSources runs the controller of DataSources until the test ends.
func startDataSources(t *testing.T) {
	t.Helper()
	mgr, err := ctrl.NewManager(rest.CopyConfig(baseCfg), ctrl.Options{Scheme: admin.Scheme(), Metrics: metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0", Controller: controllers.Controller{SkipNameValidation: ptr.To(true)}})
	must(t, err)
	must(t, datasource.Setup(mgr, cluster.New(mgr.GetClient(), mgr.GetEventRecorder("berth"), clock.RealClock{})))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
}

// TestDataSourceLosesItsSource: a namespace that is not said is the DataSource's own, and one whose source is removed is not ready any more.
func TestDataSourceLosesItsSource(t *testing.T) {
	startDataSources(t)
	d := object(`{kind: DataSource, metadata: {name: loses, namespace: team}, spec: {source: {pvc: {namespace: "", name: golden}}}}`)
	create(t, admin, d)
	says := func(reason string, is func(cdiv1.DataSourceSource) bool) {
		t.Helper()
		eventually(t, "the DataSource to say "+reason, func() (bool, error) {
			var now cdiv1.DataSource
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(d), &now); err != nil {
				return false, err
			}
			c := now.Status.Conditions
			return len(c) == 1 && c[0].Reason == reason && is(now.Status.Source), fmt.Errorf("%+v", now.Status)
		})
	}
	says("NotFound", func(s cdiv1.DataSourceSource) bool { return s.PVC != nil && s.PVC.Namespace == "team" })
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(d.Object, "spec", "source", "pvc")
	if err := admin.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	says("NoSource", func(s cdiv1.DataSourceSource) bool { return s == cdiv1.DataSourceSource{} })
}
