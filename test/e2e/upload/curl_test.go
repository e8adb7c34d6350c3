//go:build e2e

package upload

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/test/e2e/fixture"
)

// insecure is a client as virtctl's is with --insecure.
func insecure() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
}

// TestUploadByCurl uploads with nothing but curl: first everything that is wrong, each with its answer, then PUT, a form
// and a compressed POST; the volume says what happened, and nothing is left.
func TestUploadByCurl(t *testing.T) {
	t.Parallel()
	d := fixture.NewUploads(fixture.NewVolumes(t))
	disk := fixture.DiskImage(8)
	good := d.WriteFile("disk.img", disk)
	phases := d.RecordPhases("up")
	d.CreateUpload("up", "16Mi")
	rolesDecide(d, "up")
	token := d.RequestToken("up")

	d.Answers("200", "", token, "/v1beta1/upload-async", "-I")
	d.Answers("400", "Authorization: Bearer", "", "/v1beta1/upload", "-T", good)
	d.Answers("401", "malformed", "nonsense", "/v1beta1/upload", "-T", good)
	d.Answers("401", "not made by this installation", "e30.e30", "/v1beta1/upload", "-T", good)
	d.Answers("405", "", token, "/v1beta1/upload")
	d.Answers("404", "", token, "/v1/upload", "-T", good)
	d.Answers("400", "larger than the reported available storage", token, "/v1beta1/upload", "-T", d.WriteFile("big", fixture.DiskImage(32)))
	d.Answers("400", "Saving stream failed", token, "/v1beta1/upload", "-T", d.WriteFile("bad.qcow2", []byte("QFI\xfb\x00\x00\x00\x03 and no more")))
	d.WaitEvent("up", fixture.Patience, func(reason, message string) bool {
		return reason == "UploadFailed" && strings.Contains(message, "Saving stream failed")
	})
	d.Until("up", "the condition to tell of the last upload", func(dv *cdiv1.DataVolume) bool {
		return dv.Status.Phase == cdiv1.UploadReady && strings.Contains(fixture.ReadyMessageOf(dv), "the last upload failed")
	})
	// another claim's upload, by tus
	d.Answers("403", "the token is for PVC", token, "/v1beta1/tus/0e8f1b9a-0000.10-image-0123456789abcdef", "-X", "PATCH",
		"-H", "Tus-Resumable: 1.0.0", "-H", "Upload-Offset: 0", "-H", "Content-Type: application/offset+octet-stream", "--data", "x")

	d.Answers("200", "", token, "/v1beta1/upload", "-T", good)
	d.UntilPhase("up", cdiv1.Succeeded)
	d.Answers("409", "already finished uploading", token, "/v1beta1/upload", "-T", good)
	if got, want := fmt.Sprint(phases()), "UploadScheduled UploadReady Succeeded]"; !strings.HasSuffix(got, want) {
		t.Errorf("phases were %s, want ... %s", got, want)
	}
	d.HoldsRaw("up", disk)
	leftNothing(d, "up")

	d.CreateUpload("form", "16Mi")
	d.Answers("200", "", d.RequestToken("form"), "/v1beta1/upload-form", "-F", "file=@"+good)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(disk)
	_ = w.Close()
	d.CreateUpload("gz", "16Mi")
	d.Answers("200", "", d.RequestToken("gz"), "/v1beta1/upload-async", "--data-binary", "@"+d.WriteFile("disk.img.gz", packed.Bytes()),
		"-H", "Content-Type: application/octet-stream")
	for _, name := range []string{"form", "gz"} {
		d.UntilPhase(name, cdiv1.Succeeded)
		d.HoldsRaw(name, disk)
	}
}

// rolesDecide: who has role edit in the namespace gets a token for its claims, who may only look does not.
func rolesDecide(d *fixture.Uploads, claim string) {
	d.T.Helper()
	ask := func(ctx context.Context, role string) error {
		return d.AsUser(role+"-"+d.Namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest", "spec": map[string]any{"pvcName": claim},
			"metadata": map[string]any{"name": "token", "namespace": d.Namespace},
		}})
	}
	for _, role := range []string{"view", "edit"} {
		d.CreateObject(&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: role + "-" + d.Namespace}},
		})
	}
	d.Wait("a token for who may edit", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := ask(ctx, "edit")
		return err == nil, fmt.Sprint(err)
	})
	if err := ask(d.Context(), "view"); !apierrors.IsForbidden(err) {
		d.T.Errorf("who may only look asks for a token: %v", err)
	}
}

// TestUploadPod is the stand-alone pod of the examples: curl fills its claim, and it ends. With a Secret it asks for a
// token.
func TestUploadPod(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	doc, err := os.ReadFile("../../../examples/upload-pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{StringData: map[string]string{"token": "sesame"}}
	secret.Namespace, secret.Name = b.Namespace, "upload-token"
	if err := b.Kube.Create(b.Context(), secret); err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	var claim corev1.PersistentVolumeClaim
	for i, part := range bytes.Split(doc, []byte("\n---\n")) {
		var err error
		if i == 0 {
			if err = yaml.UnmarshalStrict(part, &claim); err == nil {
				claim.Namespace = b.Namespace
				err = b.Kube.Create(b.Context(), &claim)
			}
		} else if err = yaml.UnmarshalStrict(part, &pod); err == nil {
			pod.Namespace = b.Namespace
			err = b.Kube.Create(b.Context(), &pod)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.WaitRunning("upload")
	if err := b.Kube.Get(b.Context(), types.NamespacedName{Namespace: b.Namespace, Name: "upload"}, &pod); err != nil {
		t.Fatal(err)
	}
	disk := fixture.DiskImage(8)
	file := (&fixture.Uploads{Volumes: b}).WriteFile("disk.img", disk)
	send := func(args ...string) string {
		args = append([]string{"-sS", "--retry", "20", "--retry-connrefused", "--retry-delay", "1", "-o", "/dev/null", "-w", "%{http_code}",
			"-T", file}, args...)
		out, err := exec.CommandContext(b.Context(), "curl", append(args, "http://"+pod.Status.PodIP+":8080/")...).Output()
		if err != nil {
			t.Fatalf("curl: %v\n%s", err, out)
		}
		return string(out)
	}
	for want, args := range map[string][]string{
		"400": nil, "401": {"-H", "Authorization: Bearer guess"},
	} {
		if got := send(args...); got != want {
			t.Errorf("with %v: got %s, want %s", args, got, want)
		}
	}
	if got := send("-H", "Authorization: Bearer sesame"); got != "200" {
		t.Fatalf("the upload was answered %s", got)
	}
	b.WaitPhase("upload", corev1.PodSucceeded)
	b.Delete("upload")
	if got := b.Sum("uploaded", "disk.img"); got != fixture.DiskSum(disk, 0) {
		t.Errorf("the disk has another sha256 than what was sent")
	}
}
