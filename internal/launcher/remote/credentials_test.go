package remote

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
)

// TestMutualCHAP: a Secret that asks for what QEMU cannot do is refused, and says which key.
func TestMutualCHAP(t *testing.T) {
	v := kubevirt.Volume{Name: "root", VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{SecretRef: &corev1.LocalObjectReference{Name: "chap"}}}}}
	for _, key := range []string{netdisk.CHAPUserBack, netdisk.CHAPPasswordBack} {
		dir := t.TempDir()
		for _, k := range []string{netdisk.CHAPUser, netdisk.CHAPPassword, key} {
			if err := os.MkdirAll(filepath.Join(dir, netdisk.CredentialsDir), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, netdisk.CredentialsDir, k), []byte("hush"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := readLogin(v, dir)
		var f *Error
		if !errors.As(err, &f) || f.Fault != launcherapi.DiskUnsupported || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", key, err)
		}
	}
}
