package localdisk

import (
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-vm/berth/internal/usagetype"
)

// paramPreallocate is a parameter of a storage class. (The parameter csi.storage.k8s.io/fstype, which the provisioner turns into a
// capability, sets the filesystem.)
const paramPreallocate = "preallocate"

// sidecarPrefix is the prefix of parameters that sidecars add for drivers that label their volumes.
const sidecarPrefix = "csi.storage.k8s.io/"

// Sizes of volumes.
const (
	// sizeUnit is the multiple that sizes are rounded up to: a multiple of every block size.
	sizeUnit = 1 << 20
	// sizeDefault is the size if the caller requests none.
	sizeDefault = 1 << 30
	// sizeMax is the largest file of XFS and ext4 with blocks of 4 KiB: 16 TiB on ext4.
	sizeMax = 16<<40 - sizeUnit
)

// access modes that storage of one node can offer.
var accessModes = []csi.VolumeCapability_AccessMode_Mode{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
}

// wish describes the requested use of a volume.
type wish struct {
	mode   string
	fsType string // empty: whichever there is, or the driver's choice
}

// readCapability checks one capability.
func readCapability(c *csi.VolumeCapability) (wish, error) {
	if c == nil || c.GetAccessType() == nil {
		return wish{}, status.Error(codes.InvalidArgument, "no volume capability is given: say block or mount")
	}
	if mode := c.GetAccessMode().GetMode(); !slices.Contains(accessModes, mode) {
		return wish{}, status.Errorf(codes.InvalidArgument,
			"access mode %s is not possible: a volume of %s is on one node (ReadWriteOnce, ReadWriteOncePod)", mode, Name)
	}
	if c.GetBlock() != nil {
		return wish{mode: modeBlock}, nil
	}
	w := wish{mode: modeFilesystem, fsType: c.GetMount().GetFsType()}
	if _, known := filesystems[w.fsType]; !known && w.fsType != "" {
		return wish{}, status.Errorf(codes.InvalidArgument, "filesystem %q is not known; ext4 and xfs are", w.fsType)
	}
	return w, nil
}

// readCapabilities checks that one volume can have all capabilities.
func readCapabilities(all []*csi.VolumeCapability) (wish, error) {
	if len(all) == 0 {
		return wish{}, status.Error(codes.InvalidArgument, "no volume capabilities are given")
	}
	var w wish
	for n, c := range all {
		next, err := readCapability(c)
		if err != nil {
			return wish{}, err
		}
		if n > 0 && next.mode != w.mode {
			return wish{}, status.Error(codes.InvalidArgument, "a volume is either Block or Filesystem, not both")
		}
		if n > 0 && w.fsType != "" && next.fsType != "" && next.fsType != w.fsType {
			return wish{}, status.Errorf(codes.InvalidArgument, "a volume has one filesystem, not %s and %s", w.fsType, next.fsType)
		}
		if next.fsType == "" {
			next.fsType = w.fsType
		}
		w = next
	}
	return w, nil
}

// fits returns an error if an existing volume does not match the request.
func (w wish) fits(r *record) error {
	if w.mode != r.Mode {
		return status.Errorf(codes.InvalidArgument, "%s is a %s volume, not %s", r.ID, r.Mode, w.mode)
	}
	if w.fsType != "" && w.fsType != r.FSType {
		return status.Errorf(codes.InvalidArgument, "%s has a filesystem %s, not %s", r.ID, r.FSType, w.fsType)
	}
	return nil
}

// readParameters reads a storage class.
func readParameters(parameters map[string]string) (preallocated bool, err error) {
	for name, value := range parameters {
		if strings.HasPrefix(name, sidecarPrefix) || name == usagetype.Parameter { // Pools has chosen the pool by it
			continue
		}
		if name != paramPreallocate {
			return false, status.Errorf(codes.InvalidArgument, "parameter %q of the class is not known; %s and %s are", name, paramPreallocate, usagetype.Parameter)
		}
		if value != "true" && value != "false" {
			return false, status.Errorf(codes.InvalidArgument, "parameter %s of the class is %q, not true or false", name, value)
		}
		preallocated = value == "true"
	}
	return preallocated, nil
}

// sizing has the bounds of a size besides the requested range: at least floor bytes, and otherwise if the caller requests no size.
type sizing struct{ floor, otherwise int64 }

// chooseSize finds the smallest size in a range.
func chooseSize(r *csi.CapacityRange, s sizing) (int64, error) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case r != nil && required == 0 && limit == 0:
		return 0, status.Error(codes.InvalidArgument, "a volume of size 0 is asked for")
	case required < 0 || limit < 0:
		return 0, status.Errorf(codes.InvalidArgument, "a negative size is asked for: required %d, limit %d bytes", required, limit)
	case limit > 0 && limit < required:
		return 0, status.Errorf(codes.InvalidArgument, "the size asked for is at least %d and at most %d bytes", required, limit)
	case required > sizeMax:
		return 0, status.Errorf(codes.OutOfRange, "a volume of %s is asked for, at most %s is possible", size(required), size(sizeMax))
	}
	bytes := required
	if bytes == 0 {
		bytes = s.otherwise
		if limit > 0 {
			bytes = min(bytes, limit/sizeUnit*sizeUnit)
		}
	}
	bytes = wholeUnits(max(bytes, s.floor))
	if limit > 0 && bytes > limit {
		return 0, status.Errorf(codes.OutOfRange, "at most %s is asked for, the smallest possible is %s", size(limit), size(bytes))
	}
	return bytes, nil
}

// wholeUnits returns the size of the volume that is made where so many bytes are asked for.
func wholeUnits(bytes int64) int64 { return (bytes + sizeUnit - 1) / sizeUnit * sizeUnit }

// floor returns the smallest size of a volume.
func (w wish) floor() int64 {
	if w.mode == modeBlock {
		return sizeUnit
	}
	return filesystems[w.fsType].minimum
}

// readTopology refuses a volume that has to be on another node.
func (p *pool) readTopology(t *csi.TopologyRequirement) error {
	if len(t.GetRequisite()) == 0 {
		return nil
	}
	var asked []string
	for _, place := range t.GetRequisite() {
		if p.isHere(place) {
			return nil
		}
		asked = append(asked, place.GetSegments()[TopologyKey])
	}
	return status.Errorf(codes.ResourceExhausted, "the volume is asked for on %s, this is node %s", strings.Join(asked, ", "), p.Node)
}

func (p *pool) isHere(place *csi.Topology) bool {
	node, said := place.GetSegments()[TopologyKey]
	return !said || node == p.Node
}
