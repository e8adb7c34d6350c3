package launch

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
)

// Report is a launcher's last words.
type Report struct {
	End    End    `json:"end"`
	Detail string `json:"detail,omitempty"` // one line for a person
}

// OK says whether the guest ended in good order.
func (r Report) OK() bool { return r.End == PoweredOff || r.End == Stopped }

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
