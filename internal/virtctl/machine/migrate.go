package machine

import (
	"context"
	"fmt"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// CancelMigration ends the migration of a machine that has not come to its end.
func CancelMigration(ctx context.Context, c *kube.Client, name string, dryRun []string) error {
	all, err := kube.Migrations.List(ctx, c)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Spec.VMIName != name || m.Ended() {
			continue
		}
		if err := kube.Migrations.Delete(ctx, c, m.Name, dryRun); err != nil {
			return fmt.Errorf("Error canceling migration %s of a VirtualMachine %s: %w", m.Name, name, err) //nolint:staticcheck // the text clients know
		}
		return nil
	}
	return fmt.Errorf("Found no migration to cancel for %s", name) //nolint:staticcheck // the text clients know
}
