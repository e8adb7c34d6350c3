package localdisk

import (
	"path/filepath"
	"regexp"
)

var volumeImage = regexp.MustCompile(`/` + dirVolumes + `/([0-9a-f]{32})/` + regexp.QuoteMeta(fileImage) + `$`)

// sweep frees the loop devices of this pool's volumes that are not mounted anywhere: their pod, or the driver between two
// steps, died. A volume that is staged but not yet published gets a device again when it is.
func (p *pool) sweep() error {
	var keys []string
	if _, err := loopsOver(func(backing string) bool {
		if m := volumeImage.FindStringSubmatch(filepath.Clean(backing)); m != nil {
			keys = append(keys, m[1])
		}
		return false
	}); err != nil {
		return err
	}
	for _, key := range keys {
		dev, err := p.attached(id{kind: kindVolume, key: key, pool: p.marker.ID, node: p.Node})
		if err != nil {
			return err
		}
		if dev == nil { // of another pool on this machine
			continue
		}
		err = p.sweepOne(dev)
		dev.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *pool) sweepOne(dev *loop) error {
	mounts, err := mountsOf(dev)
	if err != nil || len(mounts) > 0 {
		return err
	}
	p.log.Info("free a loop device that is mounted nowhere", "device", dev.path())
	return dev.detach()
}
