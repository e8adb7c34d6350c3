package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/virtctl/drill"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/vmexport"
)

// Drill are the flags of a restore drill.
type Drill struct {
	Line     *regexp.Regexp // on the serial console; nil: the readiness probe or the guest agent
	Deadline time.Duration
	BootOnly bool
}

// removal is how long the removal of a copy may take.
const removal = 2 * time.Minute

// copied is the copy of a drill as it was made.
type copied struct {
	order  drill.Order
	moment *backup.Manifest
	note   string
	served string // the export that its workers read the backups from; empty: they mount the claim
}

// Verify restores a copy of the machine without a network, finds out whether it comes up, and removes everything that it made. An error means that the drill
// could not be carried out; what it found out is in the report.
func Verify(ctx context.Context, c *kube.Client, o Options, d Drill, said io.Writer) (*Report, error) {
	o.drill, o.Early, o.Start = drill.Name(o.Name), true, true
	o.Keep = d.Deadline + removal
	exports := c
	if o.FromNamespace != "" {
		exports = c.In(o.FromNamespace)
	}
	if err := drill.Sweep(ctx, c, exports, o.Name, said); err != nil {
		return nil, fmt.Errorf("remove what earlier drills of %s left: %w", o.Name, err)
	}
	made, err := copyOf(ctx, c, o, d, said)
	if err != nil {
		return nil, errors.Join(err, removeCopy(ctx, c, exports, o.drill, ""))
	}
	_, _ = fmt.Fprintf(said, "VirtualMachine %s is made of backup %s, without a network; waiting for %s\n", o.drill, made.moment.Checkpoint, made.order.Sign)
	found := drill.Watch(ctx, c, made.order, said)
	return reportOf(o, made, found, removeCopy(ctx, c, exports, o.drill, made.served)), nil
}

// copyOf makes the copy.
func copyOf(ctx context.Context, c *kube.Client, o Options, d Drill, said io.Writer) (*copied, error) {
	out := &copied{}
	return out, withSet(ctx, c, o, said, func(s *set) error {
		p, err := prepare(ctx, s, o, c.Namespace)
		if err != nil {
			return err
		}
		sign, note, err := isolate(p, o, d.Line != nil)
		if err == nil {
			err = check(ctx, c, p)
		}
		if err != nil {
			return fmt.Errorf("nothing was made: %w", err)
		}
		since := time.Now()
		made, err := create(ctx, c, p)
		if err != nil {
			return err
		}
		out.moment, out.note = p.moment, note
		out.order = drill.Order{Name: made.Name, UID: made.UID, Since: since, Sign: sign, Line: d.Line, BootOnly: d.BootOnly, Deadline: d.Deadline}
		for _, disk := range p.disks {
			out.order.Disks = append(out.order.Disks, disk.name)
		}
		if s.keep = true; s.aids != nil {
			out.served = s.aids.name
		}
		return nil
	})
}

// removeCopy removes the copy, also if the user has had enough. It finds a copy whose creation was not answered.
func removeCopy(ctx context.Context, c, exports *kube.Client, name, served string) error {
	aside, cancel := context.WithTimeout(context.WithoutCancel(ctx), removal)
	defer cancel()
	err := drill.Remove(aside, c, name)
	if served != "" {
		err = errors.Join(err, vmexport.Delete(aside, exports, served, io.Discard))
	}
	return err
}
