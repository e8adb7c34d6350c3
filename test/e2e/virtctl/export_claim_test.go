//go:build e2e

package virtctl

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestExportSaysItsClaim: an export says with upstream's reasons whether its claim is there; a Service that a user deletes is made
// again, and a client that names no format gets all manifests in one List, with the token in the address as well.
func TestExportSaysItsClaim(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	b.Kubectl("apply", "-f", fixture.WriteFile(t, "export.yaml", []byte(`{apiVersion: export.kubevirt.io/v1, kind: VirtualMachineExport, metadata: {name: out, namespace: `+b.Namespace+`},
		spec: {source: {apiGroup: "", kind: PersistentVolumeClaim, name: disk}}}`)))
	says := func(reason string) {
		t.Helper()
		b.Wait("the export to say "+reason, fixture.Patience, func(context.Context) (bool, string) {
			got := b.Kubectl("get", "vmexport", "out", "-o", "jsonpath={.status.conditions[*].reason}")
			return slices.Contains(strings.Fields(got), reason), got
		})
	}
	says("PVCNotFound")
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi"})
	b.UntilPhase("disk", cdiv1.Succeeded)
	says("PVCBound")
	b.Kubectl("wait", "vmexport/out", "--for=jsonpath={.status.phase}=Ready", "--timeout=120s")

	services := b.Client.CoreV1().Services(b.Namespace)
	was, err := services.Get(b.Context(), "virt-export-out", metav1.GetOptions{})
	b.NoError(err)
	b.NoError(services.Delete(b.Context(), was.Name, metav1.DeleteOptions{}))
	b.Wait("the Service to be there again", fixture.Patience, func(ctx context.Context) (bool, string) {
		now, err := services.Get(ctx, was.Name, metav1.GetOptions{})
		return err == nil && now.UID != was.UID, fmt.Sprint(err)
	})
	name := b.Kubectl("get", "vmexport", "out", "-o", "jsonpath={.status.tokenSecretRef}")
	secret, err := b.Client.CoreV1().Secrets(b.Namespace).Get(b.Context(), name, metav1.GetOptions{})
	b.NoError(err)
	b.Wait("the manifests by the new Service", fixture.Patience, func(context.Context) (bool, string) {
		answer := asksExport(b, "out", "/internal/manifests/all?x-kubevirt-export-token="+string(secret.Data["token"]), nil)
		var list struct {
			Kind  string
			Items []struct{ Kind string }
		}
		err := json.NewDecoder(answer.Body).Decode(&list)
		return err == nil && list.Kind == "List" && len(list.Items) > 0, fmt.Sprint(answer.Status, list, err)
	})
}

// TestExportOfFiles: a volume with files instead of a disk is exported as an archive, whose members are named as tar names those of its own directory.
func TestExportOfFiles(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	b.NoError(w.WriteHeader(&tar.Header{Name: "etc/hello", Mode: 0o644, Size: 5, Typeflag: tar.TypeReg}))
	_, err := w.Write([]byte("world"))
	b.NoError(err)
	b.NoError(w.Close())
	b.Web.Put("/files.tar", files.Bytes())
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Size: "40Mi", URL: b.Web.URL + "/files.tar", Change: func(dv *cdiv1.DataVolume) { dv.Spec.ContentType = cdiv1.DataVolumeArchive }})
	b.UntilPhase("disk", cdiv1.Succeeded)
	b.Kubectl("apply", "-f", fixture.WriteFile(t, "export.yaml", []byte(`{apiVersion: export.kubevirt.io/v1beta1, kind: VirtualMachineExport, metadata: {name: out, namespace: `+b.Namespace+`},
		spec: {source: {apiGroup: "", kind: PersistentVolumeClaim, name: disk}}}`)))
	b.Kubectl("wait", "vmexport/out", "--for=jsonpath={.status.phase}=Ready", "--timeout=120s")
	secret, err := b.Client.CoreV1().Secrets(b.Namespace).Get(b.Context(), b.Kubectl("get", "vmexport", "out", "-o", "jsonpath={.status.tokenSecretRef}"), metav1.GetOptions{})
	b.NoError(err)
	answer := asksExport(b, "out", "/volumes/disk/disk.tar.gz", map[string]string{"x-kubevirt-export-token": string(secret.Data["token"])})
	packed, err := gzip.NewReader(answer.Body)
	b.NoError(err)
	var names []string
	for members := tar.NewReader(packed); ; {
		h, err := members.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		b.NoError(err)
		names = append(names, h.Name)
	}
	if !slices.Contains(names, "./etc/hello") {
		t.Errorf("the members are %q", names)
	}
}
