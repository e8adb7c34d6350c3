package cluster

import "context"

// Down ends the cluster and removes all that it made, programs excepted. It also cleans up after a cluster, of this or another
// checkout, whose processes are gone.
func (b *Box) Down(ctx context.Context) error {
	lock, err := b.exclusive("down")
	if err != nil {
		return err
	}
	defer lock.Close()
	ms, other, err := b.machines()
	if err != nil {
		return err
	}
	if err := refuseOther(other); err != nil {
		return err
	}
	if err := b.sweep(ctx, ms); err != nil {
		return err
	}
	if err := b.wipe(); err != nil {
		return err
	}
	b.say("ended %d machines and removed the cluster in %s", len(ms), b.Layout.Dir)
	return nil
}
