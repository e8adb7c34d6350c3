package fill

import (
	"context"

	"github.com/berth-vm/berth/internal/clonesource"
	cloning "github.com/berth-vm/berth/internal/controller/clone"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
)

// observeBackup finds out where the backup can be read that the claim is filled with.
func (e *Engine) observeBackup(ctx context.Context, s *Seen) error {
	b := s.clone.Backup()
	if b == nil || b.Claim == nil {
		return nil
	}
	home, err := clonesource.Home(ctx, e.objects, b.Claim)
	s.besideBackup = home != nil
	return err
}

// readsBackup says what the worker reads of a backup: files at a server, or in a claim that is mounted to be read.
func (s *Seen) readsBackup(from *cloning.Reading, b *clonesource.Backup) error {
	disk := &task.Backup{Checkpoint: b.Disk.Checkpoint, Disk: b.Disk.Volume, Manifest: b.Disk.Manifest}
	if b.Server != nil {
		origin, err := render.FromServer(b.Server, b.At, s.settings.Network())
		if err != nil {
			return err
		}
		disk.Set, from.Origin = origin.Source, origin
	} else {
		from.Disk = &render.Disk{Claim: b.Disk.Claim.Name}
		disk.Set, disk.Path = task.Source{Local: &task.Local{Path: render.SourceDir}}, b.Disk.Claim.Path
	}
	from.Source = task.Source{Backup: disk}
	return nil
}
