package remote

import (
	"errors"
	"slices"
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// words are parts of the messages of QEMU 7.2 and of its libraries about servers, with the fault that they mean. Nothing else tells these
// errors apart: each comes as EINVAL, as EPERM or without a number. The messages in the test were recorded with real servers.
var words = []struct {
	text  string
	fault launcherapi.Fault
}{
	{"Status: Authentication failure", launcherapi.DiskDenied}, // libiscsi
	{"Status: Authorization failure", launcherapi.DiskDenied},
	{"Status: Target not found", launcherapi.DiskAbsent},
	{"LOGICAL_UNIT_NOT_SUPPORTED", launcherapi.DiskAbsent},
	{"error connecting: Operation not permitted", launcherapi.DiskDenied}, // librados
	{"error connecting: Permission denied", launcherapi.DiskDenied},
	{"error connecting: Invalid argument", launcherapi.DiskDenied},
	{"error connecting: Connection timed out", launcherapi.DiskUnreachable},
	{"error opening pool", launcherapi.DiskAbsent},
	{"error reading header from", launcherapi.DiskAbsent},
	{"The certificate", launcherapi.DiskDenied}, // gnutls, by way of QEMU
	{"TLS channel", launcherapi.DiskDenied},
	{"TLS handshake", launcherapi.DiskDenied},
	{"Did you forget a valid tls-creds", launcherapi.DiskDenied},
	{"Requested export not available", launcherapi.DiskAbsent}, // NBD
	{"Block node is read-only", launcherapi.DiskReadOnly},      // the device that would write to it
	{"LUN is write protected", launcherapi.DiskReadOnly},
	{"Could not open image: Permission denied", launcherapi.DiskReadOnly}, // an NBD export that is added to a guest that runs
	{"Gluster connection for volume", launcherapi.DiskUnreachable},
	{"Could not open", launcherapi.DiskAbsent},
	{"No such file or directory", launcherapi.DiskAbsent},
	{"Connection refused", launcherapi.DiskUnreachable},
	{"Connection timed out", launcherapi.DiskUnreachable},
	{"No route to host", launcherapi.DiskUnreachable},
}

// Classify returns an error of QEMU as a *faulty if it is about a server of one of the machine's disks, and unchanged otherwise.
func Classify(m launcherapi.Machine, err error) error {
	if !slices.ContainsFunc(m.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Networked() }) {
		return err
	}
	text := sentence(err.Error())
	for _, w := range words {
		if !strings.Contains(text, w.text) {
			continue
		}
		if w.fault == launcherapi.DiskReadOnly {
			text = writers(m) + ": " + text
		}
		return &Error{w.fault, errors.New(text)}
	}
	return err
}

// writers names the network disks that the machine would write to: QEMU's message does not name the disk.
func writers(m launcherapi.Machine) string {
	var all []string
	for _, v := range m.Spec.Volumes {
		if v.Networked() && !v.Reads() && v.Copied() == nil {
			all = append(all, v.Name)
		}
	}
	if len(all) == 1 {
		return "volume " + all[0]
	}
	return "one of the volumes " + strings.Join(all, ", ")
}

// sentence returns QEMU's message without the JSON description of the disk in front of it.
func sentence(text string) string {
	if at := strings.LastIndex(text, "}: "); at >= 0 {
		text = text[at+len("}: "):]
	}
	return strings.TrimSpace(text)
}
