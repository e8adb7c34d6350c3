package localdisk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// remove takes a volume or snapshot away; one that is not there is fine. The rename decides: before it nothing happened,
// after it the next start finishes what is left.
func (p *pool) remove(i id) error {
	if i.kind == kindVolume {
		if err := p.release(i); err != nil {
			return err
		}
	}
	trash := filepath.Join(p.Dir, dirTrash, i.key+"-"+rand.Text())
	err := os.Rename(p.dir(i), trash)
	if errors.Is(err, fs.ErrNotExist) {
		return p.present()
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", i, err)
	}
	p.reached("remove: moved")
	if err := errors.Join(syncDir(filepath.Dir(p.dir(i))), syncDir(filepath.Dir(trash))); err != nil {
		return err
	}
	p.reached("remove: lasting")
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("remove %s: %w", i, err)
	}
	p.reached("remove: gone")
	return nil
}

// release frees the loop device of a volume that is about to go. A device that is mounted somewhere is in use.
func (p *pool) release(i id) error {
	dev, err := p.attached(i)
	if err != nil || dev == nil {
		return err
	}
	defer dev.close()
	mounts, err := mountsOf(dev)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return status.Errorf(codes.FailedPrecondition, "volume %s is in use on node %s: %s is mounted at %s",
			i, p.Node, dev.path(), mounts[0].point)
	}
	return dev.detach()
}
