package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/berth-vm/berth/internal/admission"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/annotatedclaim"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/cron"
	"github.com/berth-vm/berth/internal/controller/datasource"
	"github.com/berth-vm/berth/internal/controller/datavolume"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/controller/hookpath"
	"github.com/berth-vm/berth/internal/controller/installkeys"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/controller/populate"
	"github.com/berth-vm/berth/internal/controller/profile"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/version"
)

// apiService leads to the aggregated APIs, which serve with the same certificate as the webhooks.
const apiService = "berth-api"

// setUpData adds the data side: what fills a volume, and the checks at its door.
func setUpData(ctx context.Context, mgr ctrl.Manager, writer *cluster.Writer, records *diskaccess.Records, o options) error {
	if err := mgr.Add(configureOnce(mgr, writer, o.gates)); err != nil {
		return fmt.Errorf("add the first configuration: %w", err)
	}
	if err := config.Setup(mgr, writer, config.Options{Namespace: o.namespace, Version: version.Get().Version}); err != nil {
		return err
	}
	if err := profile.Setup(mgr, writer); err != nil {
		return err
	}
	if err := datasource.Setup(mgr, writer); err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	tokens := installkeys.NewClone(mgr.GetAPIReader(), writer, o.namespace, clients.AuthorizationV1().SubjectAccessReviews())
	uploads := &installkeys.Upload{Reader: mgr.GetAPIReader(), Writer: writer, Namespace: o.namespace, Clock: clock.RealClock{}}
	if err := mgr.Add(uploads); err != nil {
		return fmt.Errorf("add the keys of uploads: %w", err)
	}
	engine, err := fill.Setup(mgr, writer, o.image, fill.Shared{Clones: tokens, Uploads: uploads, Records: records}, ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	workers := &podend.Keeper{Reader: mgr.GetClient(), Live: mgr.GetAPIReader(), Cluster: writer, Finalizer: render.WorkerEnd,
		Before: records.ReleaseEnded}
	if err := workers.Setup(mgr, "worker-end"); err != nil {
		return err
	}
	if err := datavolume.Setup(mgr, engine, writer); err != nil {
		return err
	}
	if err := populate.Setup(mgr, engine, writer); err != nil {
		return err
	}
	if err := annotatedclaim.Setup(mgr, engine, writer); err != nil {
		return err
	}
	if err := cron.Setup(mgr, writer, o.image); err != nil {
		return err
	}
	if err := admission.Setup(ctx, mgr, tokens); err != nil {
		return err
	}
	checks, apis := []string{admission.Validating}, []string{"v1beta1.upload.cdi.kubevirt.io"}
	if o.controllers == "all" {
		checks = append(checks, admission.ValidatingMachine)
		apis = append(apis, "v1.subresources.kubevirt.io", "v1alpha3.subresources.kubevirt.io")
	}
	return o.answer(ctx, mgr, writer, installkeys.Options{
		Services: []string{apiService, admission.Service}, Validating: checks, Mutating: []string{admission.Mutating}, APIServices: apis,
	})
}

// answer has the API server trust the certificate that webhooks and APIs answer with, and know where the webhooks are.
func (o options) answer(ctx context.Context, mgr ctrl.Manager, writer *cluster.Writer, keys installkeys.Options) error {
	keys.Namespace, keys.Dir = o.namespace, os.TempDir()
	if err := o.serving.Start(ctx, mgr, writer, keys); err != nil {
		return err
	}
	return o.paths.Setup(mgr, writer, hookpath.Options{
		Namespace: o.namespace, Validating: keys.Validating, Mutating: keys.Mutating, Paths: admission.Paths, Clock: clock.RealClock{},
	})
}
