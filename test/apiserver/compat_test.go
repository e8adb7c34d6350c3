//go:build apiserver

package apiserver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/controller/metrics"
)

// TestConfigFollows: the CDIConfig shows what the CDI resource says, also after the last field of its settings was removed and
// after settings came back.
func TestConfigFollows(t *testing.T) {
	cdi := object(`{kind: CDI, metadata: {name: follows}, spec: {config: {featureGates: [HonorWaitForFirstConsumer]}}}`)
	create(t, admin, cdi)
	shows := func(want string) {
		t.Helper()
		eventually(t, "the CDIConfig shows "+want, func() (bool, error) {
			var config cdiv1.CDIConfig
			if err := admin.Get(t.Context(), client.ObjectKey{Name: "config"}, &config); err != nil {
				return false, err
			}
			// KubeVirt's controllers size claims with it: a number in a string
			if o := config.Status.FilesystemOverhead; o == nil {
				return false, errors.New("it shows no overhead")
			} else if _, err := strconv.ParseFloat(string(o.Global), 64); err != nil {
				return false, err
			}
			got := fmt.Sprint(config.Spec.FeatureGates, config.Spec.Preallocation != nil, config.Status.Preallocation)
			return got == want, fmt.Errorf("it shows %s", got)
		})
	}
	shows("[HonorWaitForFirstConsumer] false false")
	for _, step := range []struct{ patch, want string }{
		{`{spec: {config: {featureGates: null}}}`, "[] false false"},
		{`{spec: {config: {preallocation: true}}}`, "[] true true"},
		{`{spec: {config: null}}`, "[] false false"},
		{`{spec: {config: {featureGates: [A]}}}`, "[A] false false"},
	} {
		if err := admin.Patch(t.Context(), cdi, client.RawPatch("application/merge-patch+json", toJSON(t, step.patch))); err != nil {
			t.Fatal(err)
		}
		shows(step.want)
	}
}

// TestWithoutSpec: an object without a spec, or with an empty part of one, is refused in a sentence, not in the words of the
// expressions that guard it.
func TestWithoutSpec(t *testing.T) {
	for _, row := range []struct{ object, want string }{
		{`{kind: DataVolume, metadata: {name: v, namespace: team}}`, "spec: Required value"},
		{`{kind: DataVolume, metadata: {name: v, namespace: team}, spec: {}}`, "Missing Data volume PVC"},
		{`{kind: DataVolume, metadata: {name: v, namespace: team}, spec: null}`, "spec: Required value"},
		{`{kind: DataSource, metadata: {name: v, namespace: team}}`, "spec: Required value"},
		{`{kind: DataImportCron, metadata: {name: v, namespace: team}}`, "spec: Required value"},
		{`{kind: DataImportCron, metadata: {name: v, namespace: team}, spec: {}}`, "Required value"},
		{`{kind: VolumeImportSource, metadata: {name: v, namespace: team}}`, "spec: Required value"},
		{`{kind: VolumeUploadSource, metadata: {name: v, namespace: team}}`, "spec: Required value"},
		{`{kind: VolumeCloneSource, metadata: {name: v, namespace: team}}`, "spec: Required value"},
		{`{kind: VolumeCloneSource, metadata: {name: v, namespace: team}, spec: {}}`, "spec.source: Required value"},
		{`{kind: StorageProfile, metadata: {name: v}}`, "spec: Required value"},
		{`{kind: CDI, metadata: {name: v}}`, "spec: Required value"},
		{`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: v, namespace: team}}`, "spec: Required value"},
		{`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: v, namespace: team}, spec: {dataVolumeTemplates: [{metadata: {name: d}}]}}`,
			"Required value"},
		{`{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: v, namespace: team}}`, "spec: Required value"},
		{`{apiVersion: snapshot.kubevirt.io/v1beta1, kind: VirtualMachineSnapshot, metadata: {name: v, namespace: team}}`, "spec: Required value"},
		{`{apiVersion: snapshot.kubevirt.io/v1beta1, kind: VirtualMachineSnapshot, metadata: {name: v, namespace: team}, spec: {}}`, "spec.source: Required value"},
		{`{apiVersion: snapshot.kubevirt.io/v1beta1, kind: VirtualMachineRestore, metadata: {name: v, namespace: team}, spec: {}}`, "Required value"},
	} {
		err := admin.Create(t.Context(), object(row.object), client.DryRunAll)
		switch {
		case err == nil:
			t.Errorf("accepted %s", row.object)
		case !strings.Contains(err.Error(), row.want), strings.Contains(err.Error(), "no such key"), strings.Contains(err.Error(), "expression"):
			t.Errorf("%s:\ngot  %v\nwant %s", row.object, err, row.want)
		}
	}
	// What has a spec may lose it neither.
	u := object(dv(fromHTTP + "," + storage))
	create(t, admin, u)
	err := admin.Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", []byte(`{"spec":null}`)))
	if err == nil || !strings.Contains(err.Error(), "spec: Required value") {
		t.Errorf("a volume lost its spec: %v", err)
	}
}

// claimWith returns a claim with these annotations of cdi.kubevirt.io.
func claimWith(annotations string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: ordered, namespace: team, annotations: {%s}}, spec: {
		accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, annotations)
}

// TestClaimOrders: what annotations of a claim order is judged when they are written: silence would be worst.
func TestClaimOrders(t *testing.T) {
	const key = "cdi.kubevirt.io/storage."
	for _, row := range []struct{ annotations, want string }{
		{key + `upload.target: ""`, ""},
		{key + `upload.target: "", ` + key + `contentType: archive`, ""},
		{key + `upload.target: "", ` + key + "contentType: \"tape\\n<script>\"", `storage.contentType is "tape\n<script>", which is neither kubevirt nor archive`},
		{key + `import.endpoint: "https://example.com/disk.qcow2"`, ""},
		{key + `import.endpoint: "docker://quay.io/containerdisks/fedora", ` + key + `import.source: registry`, ""},
		{key + `import.source: none`, ""},
		{key + `import.source: http`, "storage.import.endpoint is missing or empty"},
		{key + `import.endpoint: "ftp://example.com/x"`, `Invalid source URL scheme: "ftp", use http, https`},
		{key + `import.endpoint: "https://example.com/x", ` + key + `import.checksum: "sha256:ab"`, "must be algorithm:hex"},
		{key + `import.endpoint: "https://example.com/x", ` + key + `import.source: vddk`, `storage.import.source is "vddk", which cannot be imported`},
		{key + `import.endpoint: "https://example.com/x", ` + key + `upload.target: ""`, "remove one of the annotations"},
		{`k8s.io/CloneRequest: golden/fedora`, "write a DataVolume with spec.source.pvc"},
		{`k8s.io/CloneRequest: golden/fedora, k8s.io/CloneOf: "true"`, ""}, // restored from a backup
		{key + `import.endpoint: "nonsense", ` + key + `pod.phase: Succeeded`, ""},
		{key + `contentType: whatever`, ""}, // nothing is ordered
	} {
		err := admin.Create(t.Context(), object(claimWith(row.annotations)), client.DryRunAll)
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%s: %v", row.annotations, err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s:\ngot  %v\nwant %s", row.annotations, err, row.want)
		}
	}
	u := object(claimWith(`a: b`))
	create(t, admin, u)
	for patch, want := range map[string]string{
		`{metadata: {annotations: {cdi.kubevirt.io/storage.import.endpoint: ""}}}`: "storage.import.endpoint is missing or empty",
		`{metadata: {annotations: {cdi.kubevirt.io/storage.upload.target: ""}}}`:   "",
		`{metadata: {labels: {a: b}}}`:                                             "",
	} {
		err := admin.Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", toJSON(t, patch)), client.DryRunAll)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", patch, err, want)
		}
	}
}

// TestMetrics: the metrics that dashboards of upstream show, of objects as the API server has them.
func TestMetrics(t *testing.T) {
	for phase, progress := range map[cdiv1.DataVolumePhase]string{cdiv1.ImportInProgress: "12.50%", cdiv1.CloneInProgress: "25.00%", cdiv1.Pending: "N/A"} {
		u := object(dv(fromHTTP + "," + storage))
		u.SetName("measured-" + strings.ToLower(string(phase)))
		create(t, admin, u)
		patch := fmt.Sprintf(`{status: {phase: %s, progress: %q}}`, phase, progress)
		if err := admin.Status().Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", toJSON(t, patch))); err != nil {
			t.Fatal(err)
		}
	}
	behind := object(strings.Replace(cron(image, "* * * * *", "m", ""), "spec: {", "status: {conditions: [{type: UpToDate, status: 'False'}]}, spec: {", 1))
	create(t, admin, behind)
	create(t, admin, object(`{kind: CDI, metadata: {name: measured}, spec: {}}`))
	create(t, admin, class("m-rbd", "rook-ceph.rbd.csi.ceph.com"))
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Now{Reader: admin})
	for _, want := range []string{
		"kubevirt_cdi_import_progress_total{measured-importinprogress} 12.5", "kubevirt_cdi_clone_progress_total{measured-cloneinprogress} 25",
		"kubevirt_cdi_datavolume_pending{} 1", "kubevirt_cdi_cr_ready{} 1", "kubevirt_cdi_storageprofile_info{m-rbd} 1",
		"kubevirt_cdi_dataimportcron_outdated{c} 1",
	} {
		name, _, _ := strings.Cut(want, "{")
		eventually(t, want, func() (bool, error) {
			var got []string
			families, err := registry.Gather()
			for _, f := range families {
				for _, m := range f.Metric {
					about := ""
					for _, label := range m.Label {
						if slices.Contains([]string{"name", "cron_name", "storageclass"}, label.GetName()) {
							about = label.GetValue()
						}
					}
					if f.GetName() == name {
						got = append(got, fmt.Sprintf("%s{%s} %v", name, about, m.GetGauge().GetValue()+m.GetCounter().GetValue()))
					}
				}
			}
			return slices.Contains(got, want), fmt.Errorf("%v %w", got, err)
		})
	}
}

// TestAcceptsWithoutEffect: what nothing acts on here is taken all the same, so that YAML that was written for upstream applies.
func TestAcceptsWithoutEffect(t *testing.T) {
	for name, text := range map[string]string{
		"DataVolume":         dv(fromHTTP + "," + storage + ", finalCheckpoint: true"),
		"VolumeImportSource": `{kind: VolumeImportSource, metadata: {name: i, namespace: team}, spec: {source: {blank: {}}, targetClaim: t, finalCheckpoint: true}}`,
		"CDI": `{kind: CDI, metadata: {name: x}, spec: {
			infra: {nodeSelector: {kubernetes.io/os: linux}, deploymentReplicas: 2, apiServerReplicas: 2, uploadProxyReplicas: 2},
			customizeComponents: {flags: {api: {v: "5"}}, patches: [{resourceName: cdi-deployment, resourceType: Deployment, patch: "{}", type: merge}]},
			certConfig: {ca: {duration: 48h, renewBefore: 24h}, server: {duration: 24h}, client: {duration: 24h}}, priorityClass: high,
			config: {scratchSpaceStorageClass: s, dataVolumeTTLSeconds: 10, logVerbosity: 3, importProxy: {trustedCAProxy: bundle},
				tlsSecurityProfile: {type: Intermediate, intermediate: {}}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			u := object(text)
			if err := admin.Create(t.Context(), u, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestProfileAnnotations: what an annotation of a class says about clones.
func TestProfileAnnotations(t *testing.T) {
	c := class("a-rbd", "rook-ceph.rbd.csi.ceph.com")
	c.Annotations = map[string]string{"cdi.kubevirt.io/clone-strategy": "copy"}
	create(t, admin, c)
	profileOf(t, "a-rbd", "[ReadWriteMany] Block; [ReadWriteOnce] Block; [ReadWriteOnce] Filesystem; clone copy; Recognized True RecognizedProvisioner")
}

// TestConfigShows: the CDIConfig shows what holds of the network and of images, and the CDI resource which version shows it.
func TestConfigShows(t *testing.T) {
	create(t, admin, object(`{kind: CDI, metadata: {name: shows}, spec: {config: {importProxy: {HTTPProxy: "http://p:1", HTTPSProxy: "http://p:2", noProxy: x},
		imagePullSecrets: [{name: pull}], insecureRegistries: ["r:5000"]}}}`))
	eventually(t, "it is shown", func() (bool, error) {
		var config cdiv1.CDIConfig
		if err := admin.Get(t.Context(), client.ObjectKey{Name: "config"}, &config); err != nil {
			return false, err
		}
		proxy := config.Status.ImportProxy
		return proxy != nil && proxy.HTTPProxy != nil && *proxy.HTTPProxy == "http://p:1" && *proxy.HTTPSProxy == "http://p:2" && *proxy.NoProxy == "x" &&
			len(config.Status.ImagePullSecrets) == 1 && slices.Equal(config.Spec.InsecureRegistries, []string{"r:5000"}), fmt.Errorf("%+v", config.Status)
	})
	eventually(t, "the versions are shown", func() (bool, error) {
		var cdi cdiv1.CDI
		err := admin.Get(t.Context(), client.ObjectKey{Name: "shows"}, &cdi)
		s := cdi.Status
		return s.OperatorVersion == "test" && s.TargetVersion == "test" && s.ObservedVersion == "test", err
	})
}
