// Package libnbd has the names of libguestfs.org/libnbd that CDI's importer uses for VMware disks (vddk-datasource_amd64.go and nothing else),
// and every call fails. The real module is not published through the Go module proxy and needs a C library; with this in its place the importer
// builds as it is published, and everything but imports from VMware works. It is for tests beside CDI only.
package libnbd

import "errors"

// Flags of the protocol.
const (
	CMD_FLAG_REQ_ONE = 8 //nolint:revive // as the real module calls it
	STATE_HOLE       = 1 //nolint:revive // as the real module calls it
	STATE_ZERO       = 2 //nolint:revive // as the real module calls it
)

var errAbsent = errors.New("this importer was built without libnbd: it cannot read VMware disks")

// CommandFlag of a request.
type CommandFlag uint32

// LibnbdError has the fields of the real module's error.
type LibnbdError struct{ Op, Errmsg string }

func (e *LibnbdError) Error() string { return e.Op + ": " + e.Errmsg }

// ExtentCallback is told of extents.
type ExtentCallback func(metacontext string, offset uint64, extents []uint32, err *int) int

// PreadOptargs are options of Pread.
type PreadOptargs struct {
	Flags    CommandFlag
	FlagsSet bool
}

// BlockStatusOptargs are options of BlockStatus.
type BlockStatusOptargs struct {
	Flags    CommandFlag
	FlagsSet bool
}

// Libnbd would be a connection.
type Libnbd struct{}

// Create fails: all other calls need what it would return.
func Create() (*Libnbd, error) { return nil, errAbsent }

// AddMetaContext fails.
func (*Libnbd) AddMetaContext(string) error { return errAbsent }

// ConnectUri fails.
func (*Libnbd) ConnectUri(string) error { return errAbsent } //nolint:revive // as the real module calls it

// GetSize fails.
func (*Libnbd) GetSize() (uint64, error) { return 0, errAbsent }

// Pread fails.
func (*Libnbd) Pread([]byte, uint64, *PreadOptargs) error { return errAbsent }

// BlockStatus fails.
func (*Libnbd) BlockStatus(uint64, uint64, ExtentCallback, *BlockStatusOptargs) error {
	return errAbsent
}

// Close fails.
func (*Libnbd) Close() *LibnbdError { return &LibnbdError{Op: "close", Errmsg: errAbsent.Error()} }
