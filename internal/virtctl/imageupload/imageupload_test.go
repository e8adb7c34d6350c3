package imageupload

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/names"
)

// qcow2 returns the header of an image of that size, and room for the tables it speaks of.
func qcow2(size uint64) []byte {
	b := make([]byte, 1<<20)
	copy(b, "QFI\xfb")
	binary.BigEndian.PutUint32(b[4:], 2)
	binary.BigEndian.PutUint32(b[20:], 16) // clusters of 64 KiB
	binary.BigEndian.PutUint64(b[24:], size)
	binary.BigEndian.PutUint32(b[36:], uint32((size+1<<29-1)>>29)) // each table of the second level speaks of 512 MiB
	binary.BigEndian.PutUint64(b[40:], 3<<16)
	binary.BigEndian.PutUint64(b[48:], 1<<16)
	binary.BigEndian.PutUint32(b[56:], 1)
	return b
}

func TestSize(t *testing.T) {
	for name, c := range map[string]struct {
		content []byte
		options Options
		want    string
		err     string
	}{
		"raw":             {content: make([]byte, 5<<20), want: "5Mi"},
		"raw, odd":        {content: make([]byte, 5<<20+1), want: "6Mi"},
		"qcow2":           {content: qcow2(3 << 30), want: "3Gi"},
		"said":            {content: qcow2(3 << 30), options: Options{Size: "10G"}, want: "10G"},
		"gzip":            {content: []byte{0x1f, 0x8b, 8, 0, 0, 0}, err: errNoSize.Error() + ": the image is compressed"},
		"nothing":         {content: nil, err: errNoSize.Error()},
		"broken":          {content: []byte("QFI\xfb, and then nothing"), err: "read "},
		"an archive":      {content: []byte("tar"), options: Options{Archive: "x"}, err: errNoSize.Error()},
		"an archive said": {content: []byte("tar"), options: Options{Archive: "x", Size: "1Gi"}, want: "1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			o := c.options
			o.Image = path
			size, err := o.size()
			switch {
			case c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)):
				t.Errorf("%s, %v; want %q", size.String(), err, c.err)
			case c.err == "" && (err != nil || size.String() != c.want):
				t.Errorf("%s, %v; want %s", size.String(), err, c.want)
			}
		})
	}
}

func TestVolumeStage(t *testing.T) {
	pending := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
	placed := pending.DeepCopy()
	placed.Annotations = map[string]string{names.SelectedNode: "node1"}
	bound := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	for name, c := range map[string]struct {
		phase     cdiv1.DataVolumePhase
		claim     *corev1.PersistentVolumeClaim
		condition cdiv1.DataVolumeCondition
		want      stage
		err       string
	}{
		"new":                         {phase: "", want: onItsWay},
		"held":                        {phase: cdiv1.WaitForFirstConsumer, claim: pending, want: waitsForConsumer},
		"held, says the phase, still": {phase: cdiv1.WaitForFirstConsumer, claim: bound, want: onItsWay},
		"held, and its claim unseen":  {phase: cdiv1.WaitForFirstConsumer, want: onItsWay},
		"populated later":             {phase: cdiv1.PendingPopulation, claim: pending, want: waitsForConsumer},
		"populated on its node":       {phase: cdiv1.PendingPopulation, claim: placed, want: onItsWay},
		"scheduled":                   {phase: cdiv1.UploadScheduled, claim: bound, want: onItsWay},
		"ready":                       {phase: cdiv1.UploadReady, claim: bound, want: takesUpload},
		"done":                        {phase: cdiv1.Succeeded, claim: bound, err: "PVC dv already successfully populated"},
		"failed": {phase: cdiv1.Failed, claim: bound, err: "Provisioning failed: it is broken",
			condition: cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeReady, Message: "it is broken"}},
		"not valid": {phase: cdiv1.Pending, err: "Claim not valid: no class",
			condition: cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeBound, Reason: "ErrClaimNotValid", Message: "no class"}},
		"over quota is waited for": {phase: cdiv1.Pending, want: onItsWay,
			condition: cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeBound, Reason: "ErrExceededQuota", Message: "quota"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "dv"}}
			v.Status.Phase, v.Status.Conditions = c.phase, []cdiv1.DataVolumeCondition{c.condition}
			got, _, err := volumeStage(v, c.claim)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if err == nil && got != c.want {
				t.Errorf("stage %d, want %d", got, c.want)
			}
		})
	}
}

// TestHeld: the first line is the one users and scripts know, the others say what to do here.
func TestHeld(t *testing.T) {
	h := &heldError{kind: "DataVolume", state: "WaitForFirstConsumer", claim: "fedora-dv", class: "local",
		nodes: []string{"node3", "node1", "node2"}, vms: []string{"f", "e", "d", "c", "b", "a"}}
	if got := h.Error(); got != "cannot upload to DataVolume in state WaitForFirstConsumer" {
		t.Errorf("first line %q", got)
	}
	want := `PVC fedora-dv is bound where the first pod that uses it runs: storage class local waits for that. Repeat the command with one of
  --force-bind     to bind it on any node
  --node NAME      to bind it on that node: node1, node2, node3
  --like-vm NAME   to bind it where that VM runs or can run: a, b, c, d, e, ...
or start a pod that uses the claim fedora-dv and repeat the command when it is bound.`
	if got := h.Advice(); got != want {
		t.Errorf("advice\n%s\nwant\n%s", got, want)
	}
}
