package launcher

import (
	"context"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// withOwnLayers returns the machine's domain with layers of its own if libvirt refused it with layers of the node's cache; empty if it has none
// of those, or if libvirt did not refuse it.
func (l *Launcher) withOwnLayers(ctx context.Context, m launcherapi.Machine, why error) (string, error) {
	if why == nil || ctx.Err() != nil {
		return "", nil
	}
	if made, err := l.maker.WithOwnLayers(ctx, l.disks, why); !made || err != nil {
		return "", err
	}
	return l.domain(m)
}
