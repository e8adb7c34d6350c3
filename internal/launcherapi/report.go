package launcherapi

import (
	"encoding/json"
	"fmt"
	"os"
)

// End says how a machine's run ended.
type End string

// The ends. The machine controller maps them to the phase of the instance, and the run strategy decides what follows.
const (
	PoweredOff End = "PoweredOff" // the guest shut itself down
	Stopped    End = "Stopped"    // it shut down because it was asked to
	Killed     End = "Killed"     // it was asked to and did not within its grace period
	Crashed    End = "Crashed"    // the guest panicked or QEMU died
	Refused    End = "Refused"    // it never started: the machine as described cannot run here
	Moved      End = "Moved"      // the guest moved to another launcher
	Failed     End = "Failed"     // the program of a container image ended with another status than 0
)

// Fault names what is wrong with a disk or its server; empty if nothing is, or if there is no name for it.
type Fault string

// The faults.
const (
	DiskUnreachable Fault = "DiskUnreachable" // its server does not answer
	DiskDenied      Fault = "DiskDenied"      // its server does not accept the login or the certificates
	DiskAbsent      Fault = "DiskAbsent"      // its server has no such disk
	DiskRefused     Fault = "DiskRefused"     // machines may not connect to its server
	DiskReadOnly    Fault = "DiskReadOnly"    // it can only be read, and the machine writes to it
	DiskUnsupported Fault = "DiskUnsupported" // it needs something that QEMU's client cannot do
	// These occur while the guest runs.
	DiskFull Fault = "DiskFull" // a write found no room
	// DiskCondemned: the disk is used while it is imported, and the import cannot be completed.
	DiskCondemned Fault = "DiskCondemned"
	// DiskSourceAway: the disk is used while it is imported, and its source does not answer.
	DiskSourceAway Fault = "DiskSourceAway"
	DiskStalled    Fault = "DiskStalled" // its server accepts connections, and does not answer reads or writes
)

// Report is the report that a launcher writes when it ends.
type Report struct {
	End    End    `json:"end"`
	Fault  Fault  `json:"fault,omitempty"`
	Detail string `json:"detail,omitempty"` // one line for users
	To     string `json:"to,omitempty"`     // the pod that the guest moved to
	Pause  int64  `json:"pause,omitempty"`  // the milliseconds that the guest did not run during the move
	Came   bool   `json:"came,omitempty"`   // the guest moved here from another launcher, and ran
}

// OK reports whether the guest ended as it should.
func (r Report) OK() bool { return r.End == PoweredOff || r.End == Stopped || r.End == Moved }

// Write writes the report to the container's termination log, of which the kubelet reads at most 4 KiB; a longer detail is shortened.
func (r Report) Write(path string) error {
	const most = 3 << 10
	if len(r.Detail) > most {
		r.Detail = r.Detail[:most] + "…"
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
