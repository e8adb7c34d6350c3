package launcherapi

import (
	"encoding/json"
	"fmt"
	"os"
)

// End is how a machine's run ended.
type End string

// The ends. The machine controller maps them to the instance's phase and asks the run strategy what comes next.
const (
	PoweredOff End = "PoweredOff" // the guest shut itself down
	Stopped    End = "Stopped"    // it shut down because it was asked to
	Killed     End = "Killed"     // it was asked to and did not within its grace period
	Crashed    End = "Crashed"    // the guest panicked or QEMU died
	Refused    End = "Refused"    // it never started: the machine as described cannot run here
	Moved      End = "Moved"      // another launcher has it
	Failed     End = "Failed"     // the program of a container image ended with another status than 0
)

// Fault is what is wrong with the server of a network disk. It is empty where nothing is, or nothing that has a name.
type Fault string

// The faults.
const (
	DiskUnreachable Fault = "DiskUnreachable" // its server does not answer
	DiskDenied      Fault = "DiskDenied"      // its server does not accept the login or the certificates
	DiskAbsent      Fault = "DiskAbsent"      // its server has no such disk
	DiskRefused     Fault = "DiskRefused"     // machines may not talk to its server
	DiskReadOnly    Fault = "DiskReadOnly"    // its server lets nobody write to it, and the machine would
	DiskUnsupported Fault = "DiskUnsupported" // it wants something that QEMU's client cannot do
	// These befall a guest that runs.
	DiskFull Fault = "DiskFull" // a write found no room
	// DiskCondemned: it is used while it is imported, and the import cannot be completed as things are.
	DiskCondemned Fault = "DiskCondemned"
	// DiskSourceAway: it is used while it is imported, and its source does not answer.
	DiskSourceAway Fault = "DiskSourceAway"
	DiskStalled    Fault = "DiskStalled" // its server answers, and reads or writes do not come back
)

// Report is a launcher's last words.
type Report struct {
	End    End    `json:"end"`
	Fault  Fault  `json:"fault,omitempty"`
	Detail string `json:"detail,omitempty"` // one line for a person
	To     string `json:"to,omitempty"`     // the pod that a guest which moved went to
	Pause  int64  `json:"pause,omitempty"`  // for how many milliseconds it did not run meanwhile
	Came   bool   `json:"came,omitempty"`   // the guest came from another launcher, and ran
}

// OK says whether the guest ended in good order.
func (r Report) OK() bool { return r.End == PoweredOff || r.End == Stopped || r.End == Moved }

// Write leaves the report where the kubelet finds it. The kubelet reads at most 4 KiB, so the detail is cut.
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
