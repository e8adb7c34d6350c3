package launcher

import (
	"errors"
	"slices"
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// words are what QEMU 7.2 and the libraries it uses say of a server. There is no other way to tell these apart: each
// comes as EINVAL, EPERM or nothing but a sentence. The sentences of the test beside this are those of real servers.
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

// serverFault names what a server is at fault for, if the machine has disks at servers and the error says so.
func serverFault(m launcherapi.Machine, err error) error {
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
		return &faulty{w.fault, errors.New(text)}
	}
	return err
}

// writers names the network disks that the machine would write to: QEMU says of none which it is.
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

// sentence is what QEMU says without the description of the disk in front of it, which is long and for machines.
func sentence(text string) string {
	if at := strings.LastIndex(text, "}: "); at >= 0 {
		text = text[at+len("}: "):]
	}
	return strings.TrimSpace(text)
}
