package grant

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-vm/berth/internal/controller/diskstate"
)

// CopyLogins copies the logins of disks to the machine's namespace, where the launcher's pod mounts them. What is there under that
// name is of an earlier try.
func (r *Grants) CopyLogins(ctx context.Context, disks []diskstate.Disk) error {
	for _, d := range disks {
		if d.Undecided {
			return fmt.Errorf("volume %s: %w", d.Name, ErrUndecided)
		}
		if d.Login == nil {
			continue
		}
		if err := r.Cluster.Replace(ctx, d.Login); err != nil {
			return err
		}
	}
	return nil
}

// ErrUndecided says that the claim is about to be bound.
var ErrUndecided = errors.New("whether a disk is mounted is known when its claim is bound")
