package main

import (
	"context"
	"fmt"
	"strings"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/config/cdi"
	"github.com/berth-vm/berth/internal/cluster"
)

// configureOnce makes the CDI resource Berth starts with where a cluster has none. It cannot be part of the manifests:
// one kubectl apply cannot both define a kind and make an object of it.
func configureOnce(mgr ctrl.Manager, writer *cluster.Writer, gates *string) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		var all cdiv1.CDIList
		if err := mgr.GetAPIReader().List(ctx, &all); err != nil {
			return fmt.Errorf("list CDI resources: %w", err)
		}
		if len(all.Items) > 0 {
			return nil
		}
		first, err := firstConfig(gates)
		if err != nil {
			return err
		}
		return writer.Create(ctx, first)
	})
}

// firstConfig returns the CDI resource Berth starts with, with other feature gates if there are any.
func firstConfig(gates *string) (*cdiv1.CDI, error) {
	var first cdiv1.CDI
	if err := yaml.UnmarshalStrict(cdi.Default, &first); err != nil {
		return nil, fmt.Errorf("read the CDI resource to start with: %w", err)
	}
	if gates != nil {
		first.Spec.Config.FeatureGates = strings.FieldsFunc(*gates, func(r rune) bool { return r == ',' || r == ' ' })
	}
	return &first, nil
}
