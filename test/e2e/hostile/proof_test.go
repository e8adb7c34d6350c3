//go:build e2e

package hostile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

const (
	proofOfVolume  = "cdi.kubevirt.io/storage.clone.token"
	proofOfMachine = "berth.dev/clone-tokens"
)

// stolen is a true proof: an administrator clones the victim's claim into the tenant's namespace, where the tenant can read
// the volume's annotations. The volume is deleted again.
func (h *hostile) stolen(name, prefix string) string {
	h.t().Helper()
	b := h.own
	dv := h.clone(name)
	dv.Namespace, dv.GenerateName, dv.Spec.Source = b.Namespace, prefix, h.source()
	class := fixture.ClassWaits // nothing is copied before a pod uses it
	dv.Spec.Storage.StorageClassName = &class
	b.CreateObject(dv)
	proof := dv.Annotations[proofOfVolume]
	if proof == "" {
		h.t().Fatalf("an administrator's clone has no proof: %v", dv.Annotations)
	}
	if err := h.as.Delete(b.Context(), dv); err != nil {
		h.t().Fatal(err)
	}
	b.Wait("the volume and its claim to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := b.Kube.Get(ctx, client.ObjectKeyFromObject(dv), &cdiv1.DataVolume{})
		if apierrors.IsNotFound(err) {
			err = b.Kube.Get(ctx, client.ObjectKeyFromObject(dv), &corev1.PersistentVolumeClaim{})
		}
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	return proof
}

// cron is a DataImportCron of the tenant whose source is the victim's claim.
func (h *hostile) cron(name string, annotations map[string]string) *cdiv1.DataImportCron {
	t := h.clone("")
	t.Annotations, t.Spec.Source = annotations, h.source()
	return &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: cdiv1.DataImportCronSpec{Schedule: "* * * * *", ManagedDataSource: name, Template: *t}}
}

// importName returns the name of the volume that such a cron makes, which any user who knows the claim's UID can compute.
func (h *hostile) importName(cron string) string {
	sum := sha256.Sum256([]byte("uid:" + string(h.golden.UID)))
	return cron + "-" + hex.EncodeToString(sum[:])[:12]
}

// proofs are ways to clone with a proof that was given to another user, or with a forged one.
var proofs = attempts{
	"put it on another volume": func(h *hostile) {
		dv := byDataSource(h.clone("thief"), "thieves")
		dv.Annotations = map[string]string{proofOfVolume: h.stolen("booty", "")}
		if h.tries(dv) {
			h.make(dataSource("thieves", h.source().PVC))
			h.neverFilled("thief")
		}
	},
	"use it again": func(h *hostile) {
		dv := byDataSource(h.clone("again"), "once-more")
		dv.Annotations = map[string]string{proofOfVolume: h.stolen("again", "")}
		if h.tries(dv) {
			h.make(dataSource("once-more", h.source().PVC))
			h.neverFilled("again")
		}
	},
	"put it on after admission": func(h *hostile) {
		proof := h.stolen("patched", "")
		if h.tries(byDataSource(h.clone("patched"), "patches")) {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, proofOfVolume, proof)
			dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: h.own.Namespace, Name: "patched"}}
			if err := h.as.Patch(h.own.Context(), dv, client.RawPatch(types.MergePatchType, patch)); err != nil && !refusal(err) {
				h.t().Fatal(err)
			}
			h.make(dataSource("patches", h.source().PVC))
			h.neverFilled("patched")
		}
	},
	"forge one": func(h *hostile) {
		body := fmt.Sprintf(`{"source":{"namespace":%q},"target":{"namespace":%q,"name":"*"}}`, h.victim.Namespace, h.own.Namespace)
		dv := byDataSource(h.clone("forged"), "forgeries")
		dv.Annotations = map[string]string{proofOfVolume: base64.RawURLEncoding.EncodeToString([]byte(body)) + ".AAAA"}
		if h.tries(dv) {
			h.make(dataSource("forgeries", h.source().PVC))
			h.neverFilled("forged")
		}
	},
	"let a machine use it": func(h *hostile) {
		proof := h.stolen("machines-0", "")
		vm := h.cloning("machines", "machine-sources")
		vm.Annotations = map[string]string{proofOfMachine: fmt.Sprintf(`{"machines-0":%q}`, proof)}
		vm.Spec.DataVolumeTemplates[0].ObjectMeta.Annotations = map[string]string{proofOfVolume: proof}
		if h.tries(vm) {
			h.make(dataSource("machine-sources", h.source().PVC))
			h.neverFilled("machines-0")
		}
	},
	"let a machine use it that had none to clone": func(h *hostile) {
		proof := h.stolen("changes-0", "")
		vm := h.yard(h.own).TinyMachine("changes", fixture.ClassWaits)
		vm.Spec.RunStrategy = new(kubevirt.RunHalted)
		vm.Annotations = map[string]string{proofOfMachine: fmt.Sprintf(`{"changes-0":%q}`, proof)}
		h.make(vm)
		vm.Spec.DataVolumeTemplates[0].Spec = byDataSource(h.clone(""), "change-sources").Spec
		vm.Spec.RunStrategy = new(kubevirt.RunAlways)
		if err := h.as.Update(h.own.Context(), vm); err != nil && !refusal(err) && !apierrors.IsConflict(err) {
			h.t().Fatal(err)
		}
		h.make(dataSource("change-sources", h.source().PVC))
		h.neverFilled("changes-0")
	},
	"let a cron use it": func(h *hostile) {
		proof := h.stolen("", "generated-")
		h.tries(h.cron("generated", map[string]string{proofOfVolume: proof}))
		h.neverFilled(h.importName("generated"))
	},
	"let a restore use it": func(h *hostile) {
		proof := h.stolen("risen-0", "")
		h.restore("risen", fmt.Sprintf(`{"op":"add","path":"/metadata/annotations/berth.dev~1clone-tokens","value":%q}`,
			fmt.Sprintf(`{"risen-0":%q}`, proof)))
		h.neverFilled("risen-0")
		h.neverFilled("risen-disk")
	},
	"have admission make one": func(h *hostile) {
		h.unanswered("/authorise/datavolumes", h.reviewOfClone("admitted"))
	},
	"have admission move a guest": func(h *hostile) {
		y := h.yard(h.victim)
		launcher := y.LauncherOf(h.machine)
		h.unanswered("/evict/pods", fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",`+
			`"resource":{"version":"v1","resource":"pods"},"subResource":"eviction","namespace":%q,"name":%q,`+
			`"userInfo":{"username":"admin","groups":["system:masters"]}}}`, h.victim.Namespace, launcher.Name))
		if now := y.LauncherOf(h.machine); now.UID != launcher.UID || now.Annotations["berth.dev/evacuate"] != "" {
			h.t().Errorf("the victim's guest is to leave its node: %v", now.Annotations)
		}
	},
	"have admission tell what others have": func(h *hostile) {
		for _, path := range []string{"/", "/validate/datavolumes", "/complete/persistentvolumeclaims", "/validate/virtualmachineinstancemigrations", "/metrics", "/" + strings.Repeat("0", 48) + "/evict/pods"} {
			h.unanswered(path, h.reviewOfClone("told"))
		}
	},
	"pass for the API server": func(h *hostile) {
		path := "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/" + h.victim.Namespace + "/uploadtokenrequests"
		body := fmt.Sprintf(`{"apiVersion":"upload.cdi.kubevirt.io/v1beta1","kind":"UploadTokenRequest","metadata":{"name":"x","namespace":%q},`+
			`"spec":{"pvcName":"golden"}}`, h.victim.Namespace)
		code, answer := h.post("berth-api", path, body)
		if code != http.StatusUnauthorized && code != http.StatusForbidden {
			h.t().Errorf("the API of uploads believes whoever says to be an administrator: %d %.300s", code, answer)
		}
	},
}

// restore writes a snapshot's content of a machine that never was, with the victim's claim as a source, and restores it.
func (h *hostile) restore(target string, patches ...string) {
	h.t().Helper()
	group := "kubevirt.io"
	s := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "of-" + target}}
	s.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: target + "-before"}
	h.make(s)
	vm := h.yard(h.own).TinyMachine(target, fixture.ClassImmediate)
	vm.Spec.DataVolumeTemplates[0].Spec = h.clone("").Spec
	vm.Spec.DataVolumeTemplates[0].Spec.Source = h.source()
	c := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "vmsnapshot-content-" + string(s.UID)}}
	c.Spec.VirtualMachineSnapshotName = &s.Name
	c.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: target + "-before"}, Spec: vm.Spec}
	h.tries(c)
	ready := client.RawPatch(types.MergePatchType, []byte(`{"status":{"readyToUse":true,"phase":"Succeeded"}}`))
	for _, obj := range []client.Object{s, c} {
		if err := h.as.Status().Patch(h.own.Context(), obj, ready); err != nil && !refusal(err) && !apierrors.IsNotFound(err) {
			h.t().Fatal(err)
		}
	}
	r := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Name: "to-" + target}}
	r.Spec.Target = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: target}
	r.Spec.VirtualMachineSnapshotName, r.Spec.Patches = s.Name, patches
	h.tries(r)
}

// reviewOfClone asks whether an administrator may make a volume of this name out of the victim's claim.
func (h *hostile) reviewOfClone(name string) string {
	object := fmt.Sprintf(`{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"DataVolume","metadata":{"name":%q,"namespace":%q},`+
		`"spec":{"source":{"pvc":{"namespace":%q,"name":"golden"}},"storage":{}}}`, name, h.own.Namespace, h.victim.Namespace)
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",`+
		`"kind":{"group":"cdi.kubevirt.io","version":"v1beta1","kind":"DataVolume"},`+
		`"resource":{"group":"cdi.kubevirt.io","version":"v1beta1","resource":"datavolumes"},"namespace":%q,"name":%q,`+
		`"userInfo":{"username":"admin","groups":["system:masters"]},"object":%s}}`, h.own.Namespace, name, object)
}

// unanswered: the webhook server, which any pod can reach, has nothing for those who do not know its paths.
func (h *hostile) unanswered(path, review string) {
	h.t().Helper()
	if code, answer := h.post("berth-webhook", path, review); code != http.StatusNotFound || len(answer) > 0 {
		h.t().Errorf("admission answers anybody who asks at %s: %d %.300s", path, code, answer)
	}
}

// post sends a request straight to a Service of Berth, with the headers by which the API server says who asks.
func (h *hostile) post(service, path, body string) (int, []byte) {
	h.t().Helper()
	s, err := h.own.Client.CoreV1().Services("berth").Get(h.own.Context(), service, metav1.GetOptions{})
	if err != nil {
		h.t().Fatal(err)
	}
	url := fmt.Sprintf("https://%s:%d%s", s.Spec.ClusterIP, s.Spec.Ports[0].Port, path)
	req, err := http.NewRequestWithContext(h.own.Context(), http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		h.t().Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Remote-User", "admin")
	req.Header.Set("X-Remote-Group", "system:masters")
	to := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // an attacker does not check the server
	answer, err := to.Do(req)
	if err != nil {
		h.t().Fatalf("reach %s: %v", url, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, fixture.MiB))
	if err != nil {
		h.t().Fatal(err)
	}
	return answer.StatusCode, text
}
