package guest

import (
	"slices"
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launch"
)

// words are what QEMU 7.2 and the libraries it uses say of a server. There is no other way to tell these apart: each
// comes as EINVAL, EPERM or nothing but a sentence. The test of real servers holds them.
var words = []struct {
	text  string
	fault launch.Fault
}{
	{"Authentication failure", launch.DiskDenied}, // libiscsi
	{"Authorization failure", launch.DiskDenied},
	{"error connecting: Operation not permitted", launch.DiskDenied}, // librados
	{"error connecting: Permission denied", launch.DiskDenied},
	{"error connecting: Invalid argument", launch.DiskDenied},
	{"certificate", launch.DiskDenied}, // gnutls, by way of QEMU
	{"TLS", launch.DiskDenied},
	{"Target not found", launch.DiskAbsent},
	{"LUN", launch.DiskAbsent},
	{"error reading header", launch.DiskAbsent},
	{"error opening pool", launch.DiskAbsent},
	{"No such file or directory", launch.DiskAbsent},
	{"export", launch.DiskAbsent}, // nbd
	{"Connection refused", launch.DiskUnreachable},
	{"Connection timed out", launch.DiskUnreachable},
	{"No route to host", launch.DiskUnreachable},
}

// serverFault names what a server is at fault for, if the machine has disks at servers and the error says so.
func serverFault(m launch.Machine, err error) error {
	if !slices.ContainsFunc(m.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Networked() }) {
		return err
	}
	for _, w := range words {
		if strings.Contains(err.Error(), w.text) {
			return &faulty{w.fault, err}
		}
	}
	return err
}
