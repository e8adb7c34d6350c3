package localdisk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// remove takes a volume or snapshot away; one that is not there is fine. The rename decides: before it nothing happened,
// after it the next start finishes what is left.
func (p *pool) remove(ctx context.Context, i id) error {
	if i.kind == kindVolume {
		if err := p.clear(ctx, i); err != nil {
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
