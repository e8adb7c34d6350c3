//go:build apiserver

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/pkg/claim"
)

func class(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
}

// profileOf waits until the profile of a class says something, and gives what it says.
func profileOf(t *testing.T, class, want string) {
	t.Helper()
	var got string
	eventually(t, "StorageProfile "+class, func() (bool, error) {
		var p cdiv1.StorageProfile
		if err := admin.Get(t.Context(), types.NamespacedName{Name: class}, &p); err != nil {
			return false, err
		}
		got = describe(&p)
		return got == want, fmt.Errorf("%s", cmp.Diff(want, got))
	})
}

func describe(p *cdiv1.StorageProfile) string {
	var out []string
	for _, s := range p.Status.ClaimPropertySets {
		out = append(out, fmt.Sprintf("%v %s", s.AccessModes, *s.VolumeMode))
	}
	out = append(out, fmt.Sprintf("clone %s", ptr.Deref(p.Status.CloneStrategy, "-")))
	for _, c := range p.Status.Conditions {
		out = append(out, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(out, "; ")
}

func TestStorageProfiles(t *testing.T) {
	t.Run("a known provisioner", func(t *testing.T) {
		create(t, admin, class("p-rbd", "rook-ceph.rbd.csi.ceph.com"))
		profileOf(t, "p-rbd", "[ReadWriteMany] Block; [ReadWriteOnce] Block; [ReadWriteOnce] Filesystem; clone csi-clone; "+
			"Recognized True RecognizedProvisioner")
	})
	t.Run("an unknown one, then an administrator's word", func(t *testing.T) {
		create(t, admin, class("p-tape", "example.com/tape"))
		profileOf(t, "p-tape", "clone -; Recognized False UnrecognizedProvisioner")
		patch := `{spec: {cloneStrategy: copy, claimPropertySets: [{accessModes: [ReadWriteOnce], volumeMode: Filesystem}]}}`
		p := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: "p-tape"}}
		if err := admin.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, toJSON(t, patch))); err != nil {
			t.Fatal(err)
		}
		profileOf(t, "p-tape", "[ReadWriteOnce] Filesystem; clone copy; Recognized False UnrecognizedProvisioner")
		if err := admin.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, toJSON(t, `{spec: {claimPropertySets: null}}`))); err != nil {
			t.Fatal(err)
		}
		profileOf(t, "p-tape", "clone copy; Recognized False UnrecognizedProvisioner")
	})
	t.Run("volumes made by hand", func(t *testing.T) {
		create(t, admin, class("p-hand", claim.NoProvisioner))
		profileOf(t, "p-hand", "clone copy; Recognized False NoVolumes")
		create(t, admin, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv-hand"},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: "p-hand", VolumeMode: ptr.To(corev1.PersistentVolumeBlock),
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/dev/x"}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "k", Operator: corev1.NodeSelectorOpExists}}}}}},
			},
		})
		profileOf(t, "p-hand", "[ReadWriteOnce] Block; clone copy; Recognized True RecognizedVolumes")
	})
	t.Run("removed with its class", func(t *testing.T) {
		c := class("p-gone", "topolvm.io")
		create(t, admin, c)
		profileOf(t, "p-gone", "[ReadWriteOnce] Block; [ReadWriteOnce] Filesystem; clone snapshot; Recognized True RecognizedProvisioner")
		if err := admin.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the profile is gone", func() (bool, error) {
			err := admin.Get(t.Context(), types.NamespacedName{Name: "p-gone"}, &cdiv1.StorageProfile{})
			return err != nil && client.IgnoreNotFound(err) == nil, nil
		})
	})
	t.Run("written ahead of its class", func(t *testing.T) {
		create(t, admin, object(`{kind: StorageProfile, metadata: {name: p-ahead}, spec: {claimPropertySets: [
			{accessModes: [ReadWriteMany], volumeMode: Filesystem}]}}`))
		create(t, admin, class("p-ahead", "rancher.io/local-path"))
		profileOf(t, "p-ahead", "[ReadWriteMany] Filesystem; clone copy; Recognized True RecognizedProvisioner")
	})
}

// TestCompleteClaims sends claims as a person writes them; the API server validates only what the webhook made of them.
func TestCompleteClaims(t *testing.T) {
	virt := class("w-virt", "rbd.csi.ceph.com")
	create(t, admin, virt)
	create(t, admin, class("w-tape", "example.com/tape"))
	profileOf(t, "w-virt", "[ReadWriteMany] Block; [ReadWriteOnce] Block; [ReadWriteOnce] Filesystem; clone csi-clone; "+
		"Recognized True RecognizedProvisioner")
	profileOf(t, "w-tape", "clone -; Recognized False UnrecognizedProvisioner")
	source := object(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: golden, namespace: team}, spec: {
		storageClassName: w-virt, volumeMode: Block, accessModes: [ReadWriteMany], resources: {requests: {storage: 3Gi}}}}`)
	create(t, admin, source)
	if err := admin.Status().Patch(t.Context(), source.DeepCopy(), client.RawPatch(types.MergePatchType,
		toJSON(t, `{status: {phase: Bound, capacity: {storage: 3Gi}}}`))); err != nil {
		t.Fatal(err)
	}
	create(t, admin, object(`{kind: VolumeCloneSource, metadata: {name: fedora, namespace: team}, spec: {source: {
		kind: PersistentVolumeClaim, name: golden}}}`))
	const labelled = `metadata: {name: w, namespace: team, labels: {cdi.kubevirt.io/applyStorageProfile: "true"}}`
	for name, row := range map[string]struct{ object, want string }{
		"everything from the profile": {
			`{` + labelled + `, spec: {storageClassName: w-virt, volumeMode: FromStorageProfile, resources: {requests: {storage: 1Gi}}}}`,
			"w-virt [ReadWriteMany] Block 1Gi"},
		"a volume mode of one's own, which is Kubernetes' default too": {
			`{` + labelled + `, spec: {storageClassName: w-virt, resources: {requests: {storage: 1Gi}}}}`, "w-virt [ReadWriteOnce] Filesystem 1Gi"},
		"a clone takes its size from the source": {
			`{` + labelled + `, spec: {storageClassName: w-virt, volumeMode: FromStorageProfile,
				dataSourceRef: {apiGroup: cdi.kubevirt.io, kind: VolumeCloneSource, name: fedora}}}`, "w-virt [ReadWriteMany] Block 3Gi"},
		"a clone takes its size from the source, as others write it": {
			`{` + labelled + `, spec: {storageClassName: w-virt, volumeMode: FromStorageProfile, resources: {requests: {storage: "0"}},
				dataSourceRef: {apiGroup: cdi.kubevirt.io, kind: VolumeCloneSource, name: fedora}}}`, "w-virt [ReadWriteMany] Block 3Gi"},
		"a size of nothing, and no source": {
			`{` + labelled + `, spec: {storageClassName: w-virt, volumeMode: FromStorageProfile, resources: {requests: {storage: "0"}}}}`,
			"PVC size is missing"},
		"nothing is missing": {
			`{` + labelled + `, spec: {storageClassName: w-tape, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`,
			"w-tape [ReadWriteOnce] Filesystem 1Gi"},
		"the profile is empty": {
			`{` + labelled + `, spec: {storageClassName: w-tape, volumeMode: FromStorageProfile, resources: {requests: {storage: 1Gi}}}}`,
			"Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile w-tape; nothing is known of provisioner example.com/tape"},
		"the profile lacks a mode": {
			`{` + labelled + `, spec: {storageClassName: w-tape, resources: {requests: {storage: 1Gi}}}}`,
			"Spec is missing accessMode and cannot get access mode from StorageProfile w-tape"},
		"no class": {`{` + labelled + `, spec: {volumeMode: FromStorageProfile, resources: {requests: {storage: 1Gi}}}}`,
			"PVC spec is missing accessMode and no storageClass to choose profile"},
		"no size": {`{` + labelled + `, spec: {storageClassName: w-virt, volumeMode: FromStorageProfile}}`, "PVC size is missing"},
		"not labelled": {`{metadata: {name: w, namespace: team}, spec: {storageClassName: w-virt, resources: {requests: {storage: 1Gi}}}}`,
			"at least 1 access mode is required"},
	} {
		t.Run(name, func(t *testing.T) {
			u := object(row.object)
			u.SetAPIVersion("v1")
			u.SetKind("PersistentVolumeClaim")
			var got string
			eventually(t, name, func() (bool, error) {
				u := u.DeepCopy()
				if err := users["bob"].Create(t.Context(), u, client.DryRunAll); err != nil {
					got = err.Error()
				} else {
					got = claimed(t, u.Object)
				}
				return strings.Contains(got, row.want), fmt.Errorf("got %s, want %s", got, row.want)
			})
		})
	}
}

func claimed(t *testing.T, content map[string]any) string {
	t.Helper()
	var pvc corev1.PersistentVolumeClaim
	if err := scheme.Convert(asObject(content), &pvc, nil); err != nil {
		t.Fatal(err)
	}
	size := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	return fmt.Sprintf("%s %v %s %s", ptr.Deref(pvc.Spec.StorageClassName, "-"), pvc.Spec.AccessModes, *pvc.Spec.VolumeMode, size.String())
}

// TestDefaultVirtClass: of a claim that names no class, the class for machines is taken before the API server's own
// default has a say only if there is no such default; the API server fills in its own before any webhook is asked.
func TestDefaultVirtClass(t *testing.T) {
	c := class("w-default-virt", "rbd.csi.ceph.com")
	c.Annotations = map[string]string{"storageclass.kubevirt.io/is-default-virt-class": "true"}
	create(t, admin, c)
	eventually(t, "the class is chosen", func() (bool, error) {
		u := object(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: w, namespace: team,
			labels: {cdi.kubevirt.io/applyStorageProfile: "true"}}, spec: {volumeMode: FromStorageProfile, resources: {requests: {storage: 1Gi}}}}`)
		if err := admin.Create(t.Context(), u, client.DryRunAll); err != nil {
			return false, err
		}
		return claimed(t, u.Object) == "w-default-virt [ReadWriteMany] Block 1Gi", nil
	})
}

// TestConfig changes the CDI resource and reads what clients read.
func TestConfig(t *testing.T) {
	cdi := object(`{kind: CDI, metadata: {name: cdi}, spec: {config: {featureGates: [HonorWaitForFirstConsumer],
		uploadProxyURLOverride: "https://up.example.com", scratchSpaceStorageClass: fast, preallocation: true,
		filesystemOverhead: {global: "0.1", storageClass: {c-own: "0.02"}}, podResourceRequirements: {requests: {cpu: 1}}}}}`)
	create(t, admin, class("c-own", "x"))
	create(t, admin, class("c-other", "x"))
	create(t, admin, cdi)
	status := func() (cdiv1.CDIConfigStatus, error) {
		var c cdiv1.CDIConfig
		err := admin.Get(t.Context(), types.NamespacedName{Name: config.Name}, &c)
		return c.Status, err
	}
	eventually(t, "CDIConfig shows the settings", func() (bool, error) {
		s, err := status()
		if err != nil || s.FilesystemOverhead == nil || s.DefaultPodResourceRequirements == nil {
			return false, err
		}
		r := s.DefaultPodResourceRequirements
		got := fmt.Sprint(ptr.Deref(s.UploadProxyURL, "-"), s.ScratchSpaceStorageClass, s.Preallocation, s.FilesystemOverhead.Global,
			s.FilesystemOverhead.StorageClass["c-own"], s.FilesystemOverhead.StorageClass["c-other"],
			r.Requests.Cpu(), r.Limits.Cpu(), r.Requests.Memory(), r.Limits.Memory())
		want := fmt.Sprint("https://up.example.com", "", true, "0.1", "0.02", "0.1", ptr.To(resource.MustParse("1")),
			ptr.To(resource.MustParse("1")), ptr.To(resource.MustParse("60M")), ptr.To(resource.MustParse("600M")))
		return got == want, fmt.Errorf("got %s, want %s", got, want)
	})
	eventually(t, "the CDI resource is deployed", func() (bool, error) {
		var c cdiv1.CDI
		err := admin.Get(t.Context(), types.NamespacedName{Name: "cdi"}, &c)
		return c.Status.Phase == "Deployed" && len(c.Status.Conditions) == 3 && c.Status.ObservedVersion == "test", err
	})
	create(t, admin, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: config.UploadProxyBundle},
		Data:       map[string]string{config.UploadProxyBundleKey: "PEM"},
	})
	create(t, admin, object(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: up, namespace: berth}, spec: {rules: [
		{host: up.ingress.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: cdi-uploadproxy, port: {number: 443}}}}]}}]}}`))
	if err := admin.Patch(t.Context(), cdi, client.RawPatch(types.MergePatchType,
		toJSON(t, `{spec: {config: {uploadProxyURLOverride: null, featureGates: []}}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ingress and the authority are shown", func() (bool, error) {
		s, err := status()
		got := ptr.Deref(s.UploadProxyURL, "-") + " " + ptr.Deref(s.UploadProxyCA, "-")
		return got == "up.ingress.example.com PEM", fmt.Errorf("got %s, %w", got, err)
	})
	live, err := config.NewReader(admin).Settings(t.Context())
	if err != nil || live.Enabled(config.HonorWaitForFirstConsumer) {
		t.Errorf("the gate is still on: %+v, %v", live, err)
	}
}
