package remote

import (
	"errors"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestServerFault: what QEMU 7.2 says of tgt, nbdkit and Ceph. The rows of a wrong Ceph key and of a refused connection are
// from its source; the others were seen.
func TestServerFault(t *testing.T) {
	m := launcherapi.Machine{}
	m.Spec.Volumes = []kubevirt.Volume{{Name: "disk", VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{}}}}}
	const head = `internal error: process exited while connecting to monitor: 2026-11-15T17:00:00Z qemu-system-x86_64: -blockdev {"driver":"nbd","export":"disk","tls-creds":"x"}: `
	for text, want := range map[string]launcherapi.Fault{
		"iSCSI: Failed to connect to LUN : Failed to log in to target. Status: Authentication failure(513)":      launcherapi.DiskDenied,
		"iSCSI: Failed to connect to LUN : Failed to log in to target. Status: Target not found(515)":            launcherapi.DiskAbsent,
		"iSCSI: Failed to connect to LUN : SENSE KEY:ILLEGAL_REQUEST(5) ASCQ:LOGICAL_UNIT_NOT_SUPPORTED(0x2500)": launcherapi.DiskAbsent,
		"Requested export not available": launcherapi.DiskAbsent,
		"Block node is read-only":        launcherapi.DiskReadOnly,
		"Failed to send option request header: Cannot write to TLS channel: Input/output error": launcherapi.DiskDenied,
		"The certificate hasn't got a known issuer":                                             launcherapi.DiskDenied,
		"error connecting: Operation not permitted":                                             launcherapi.DiskDenied,
		"error reading header from nothing: No such file or directory":                          launcherapi.DiskAbsent,
		"Failed to connect to '192.0.2.1:10809': Connection refused":                            launcherapi.DiskUnreachable,
		"the machine type is unknown":                                                           "",
	} {
		var f *Error
		got := launcherapi.Fault("")
		err := Classify(m, errors.New(head+text))
		if errors.As(err, &f) {
			got = f.Fault
			if f.Error() != text && (want != launcherapi.DiskReadOnly || f.Error() != "volume disk: "+text) {
				t.Errorf("it says %q", f.Error())
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		if err := Classify(launcherapi.Machine{}, errors.New(head+text)); errors.As(err, &f) {
			t.Errorf("a machine without network disks: %v", err)
		}
	}
}
