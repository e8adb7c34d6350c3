package main

import (
	"context"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/berth-vm/berth/internal/admission"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/datasource"
	"github.com/berth-vm/berth/internal/controller/datavolume"
	"github.com/berth-vm/berth/internal/controller/keys"
	"github.com/berth-vm/berth/internal/controller/profile"
)

// setUpData adds the data side: what fills a volume, and the checks at its door.
func setUpData(ctx context.Context, mgr ctrl.Manager, writer *cluster.Writer, o options) error {
	if err := mgr.Add(configureOnce(mgr, writer)); err != nil {
		return fmt.Errorf("add the first configuration: %w", err)
	}
	if err := config.Setup(mgr, writer, config.Options{Namespace: o.namespace, Version: version}); err != nil {
		return err
	}
	if err := profile.Setup(mgr, writer); err != nil {
		return err
	}
	if err := datasource.Setup(mgr, writer); err != nil {
		return err
	}
	tokens := keys.NewClone(mgr.GetAPIReader(), writer, o.namespace)
	if err := datavolume.Setup(mgr, writer, o.image, tokens); err != nil {
		return err
	}
	if err := admission.Setup(ctx, mgr, tokens); err != nil {
		return err
	}
	return o.serving.Start(ctx, mgr, writer, keys.Options{
		Namespace: o.namespace, Services: []string{admission.Service}, Dir: os.TempDir(),
		Validating: []string{admission.Validating}, Mutating: []string{admission.Mutating},
	})
}
