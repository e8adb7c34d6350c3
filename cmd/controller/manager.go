package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	clonev1 "github.com/berth-vm/berth/api/clone/v1beta1"
	exportv1 "github.com/berth-vm/berth/api/export/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	migrationsv1 "github.com/berth-vm/berth/api/migrations/v1alpha1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/admission/webhookserver"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/metricsserver"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// leaseFor is how long the lease of a vanished leader is waited for: short, because a new leader does not disturb transfers.
const leaseFor = 15 * time.Second

// serveMetrics shows what all parts of the controller measure, on every replica.
func (o options) serveMetrics(mgr ctrl.Manager) error {
	if o.metrics == "" || o.metrics == "0" {
		return nil
	}
	err := mgr.Add(onEveryReplica(func(ctx context.Context) error {
		end, err := metricsserver.Server{Address: o.metrics, TLS: o.metricsTLS, From: ctrlmetrics.Registry, Log: slog.New(logr.ToSlogHandler(ctrl.Log.WithName("metrics")))}.Serve()
		if err != nil {
			return err
		}
		defer end()
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("add the server of metrics: %w", err)
	}
	return nil
}

// onEveryReplica runs on the leader and on the others.
type onEveryReplica func(context.Context) error

func (r onEveryReplica) Start(ctx context.Context) error { return r(ctx) }

func (onEveryReplica) NeedLeaderElection() bool { return false }

func newManager(config *rest.Config, o options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgo.AddToScheme, cdiv1.AddToScheme, kubevirt.AddToScheme, snapshotv1.AddToScheme, clonev1.AddToScheme, migrationsv1.AddToScheme, exportv1.AddToScheme, backupv1.AddToScheme, accessv1.AddToScheme, volumesnapshot.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	lease := leaseFor
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       server.Options{BindAddress: "0"}, // serveMetrics does, to those who may
		WebhookServer:                 webhookserver.New(webhookserver.Options{GetCertificate: o.serving.GetCertificate, Open: o.paths.Open}),
		HealthProbeBindAddress:        o.health,
		LeaderElection:                o.elect,
		LeaderElectionID:              "berth-controller",
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true, // run returns right after, so nothing acts without the lease
		LeaseDuration:                 &lease,
		// The record of field owners is dropped from all objects: it is often larger than the object. Of pods that are not Berth's only
		// the needed fields are cached.
		Cache: cache.Options{DefaultTransform: cacheindex.Trim},
		// Secrets are read one at a time and rarely; a watch would need the right to read all Secrets of a cluster.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("create the manager: %w", err)
	}
	for _, add := range []func(string, healthz.Checker) error{mgr.AddHealthzCheck, mgr.AddReadyzCheck} {
		if err := add("ping", healthz.Ping); err != nil {
			return nil, fmt.Errorf("add a health check: %w", err)
		}
	}
	return mgr, nil
}
