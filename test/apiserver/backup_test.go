//go:build apiserver

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestBackupSpec: what a backup has to say in each mode, and what a name cannot be.
func TestBackupSpec(t *testing.T) {
	for _, r := range []struct{ spec, want string }{
		{"pvcName: backups", ""},
		{"mode: Push, pvcName: backups", ""},
		{"mode: Pull, tokenSecretRef: token", ""},
		{"mode: Pull, tokenSecretRef: token, pvcName: scratch, ttlDuration: 1h", ""},
		{"forceFullBackup: true", "pvcName is required"},
		{"mode: Push", "pvcName is required"},
		{"mode: Pull", "tokenSecretRef is required when mode is Pull"},
		{"mode: Pull, tokenSecretRef: ''", "tokenSecretRef is required when mode is Pull"},
		{"mode: Pull, tokenSecretRef: ../other", "spec.tokenSecretRef"},
		{"mode: Pull, tokenSecretRef: other/token", "spec.tokenSecretRef"},
		{"mode: Copy, pvcName: backups", "spec.mode"},
	} {
		err := admin.Create(t.Context(), object(fmt.Sprintf(`{apiVersion: backup.kubevirt.io/v1alpha1, kind: VirtualMachineBackup, metadata: {name: b, namespace: team},
			spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: web}, %s}}`, r.spec)), client.DryRunAll, client.FieldValidation("Strict"))
		if r.want == "" && err != nil || r.want != "" && (err == nil || !strings.Contains(err.Error(), r.want)) {
			t.Errorf("%s: got %v, want %q", r.spec, err, r.want)
		}
	}
}
