//go:build apiserver

package apiserver

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

// startDataSources runs the controller of DataSources against an API server until the test ends.
func startDataSources(t *testing.T, config *rest.Config, scheme *runtime.Scheme) {
	t.Helper()
	mgr, err := ctrl.NewManager(rest.CopyConfig(config), ctrl.Options{Scheme: scheme, Metrics: metrics.Options{BindAddress: "0"},
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
	startDataSources(t, baseCfg, admin.Scheme())
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

// TestDataSourceLosesItsSnapshot: a DataSource of a VolumeSnapshot that is deleted is not ready any more.
func TestDataSourceLosesItsSnapshot(t *testing.T) {
	p := newPeer(t)
	p.create(object(snapshotKind))
	then := object(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshot, metadata: {namespace: team, name: then},
		spec: {source: {persistentVolumeClaimName: device}}}`)
	eventually(t, "snapshots to be served", func() (bool, error) { err := p.kube.Create(t.Context(), then); return err == nil, err })
	must(t, unstructured.SetNestedMap(then.Object, map[string]any{"readyToUse": true, "restoreSize": "1Gi"}, "status"))
	must(t, p.kube.Status().Update(t.Context(), then))
	startDataSources(t, p.config, p.scheme)
	d := &cdiv1.DataSource{}
	d.Namespace, d.Name = team, "os"
	d.Spec.Source.Snapshot = &cdiv1.DataVolumeSourceSnapshot{Namespace: team, Name: then.GetName()}
	p.create(d)
	says := func(reason string) {
		t.Helper()
		eventually(t, "the DataSource to say "+reason, func() (bool, error) {
			err := p.kube.Get(t.Context(), client.ObjectKeyFromObject(d), d)
			return len(d.Status.Conditions) == 1 && d.Status.Conditions[0].Reason == reason, fmt.Errorf("%+v %w", d.Status, err)
		})
	}
	says("Ready")
	must(t, p.kube.Delete(t.Context(), then))
	says("NotFound")
}
