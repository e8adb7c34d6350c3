//go:build apiserver

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dv returns a DataVolume with this spec.
func dv(spec string) string {
	return fmt.Sprintf("{kind: DataVolume, metadata: {name: v, namespace: team}, spec: {%s}}", spec)
}

const (
	blank    = "source: {blank: {}}"
	fromHTTP = `source: {http: {url: "https://example.com/disk.qcow2"}}`
	storage  = "storage: {resources: {requests: {storage: 1Gi}}}"
)

// refusals are the sentences of facts about admission, one row each, and what is ours beside them. Every object is sent
// to the real API server as a dry run.
var refusals = []struct{ name, object, want string }{
	{"no target", dv(blank), "Missing Data volume PVC"},
	{"two targets", dv(blank + "," + storage + ", pvc: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}"),
		"Duplicate storage definition, both target storage and target pvc defined"},
	{"no access mode", dv(blank + ", pvc: {resources: {requests: {storage: 1Gi}}}"),
		"Required value: at least 1 access mode is required"},
	{"two access modes", dv(blank + ", pvc: {accessModes: [ReadWriteOnce, ReadWriteMany], resources: {requests: {storage: 1Gi}}}"),
		"PVC multiple accessModes"},
	{"odd access mode", dv(blank + ", pvc: {accessModes: [ReadWrite], resources: {requests: {storage: 1Gi}}}"),
		`Unsupported value: "ReadWrite": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`},
	{"no source", dv(storage), "Data volume should have either Source or SourceRef, or be externally populated"},
	{"source and sourceRef", dv(blank + ", sourceRef: {kind: DataSource, name: d}," + storage),
		"Data volume should have either Source or SourceRef, or be externally populated"},
	{"empty clone source", dv(`source: {pvc: {namespace: "", name: fedora}},` + storage), "spec.source.PVC source PVC is not valid"},
	{"empty snapshot source", dv(`source: {snapshot: {namespace: team, name: ""}},` + storage),
		"spec.source.Snapshot source snapshot is not valid"},
	{"sourceRef without kind", dv(`sourceRef: {kind: "", name: d},` + storage), "Missing sourceRef kind"},
	{"sourceRef without name", dv(`sourceRef: {kind: DataSource, name: ""},` + storage), "Missing sourceRef name"},
	{"backup of another namespace", dv("sourceRef: {kind: VolumeBackupSource, name: d, namespace: other}," + storage), "is beside the volume"},
	{"odd sourceRef", dv("sourceRef: {kind: Image, name: d}," + storage),
		"Unsupported sourceRef kind Image, currently only DataSource is supported"},
	{"zero size", dv(blank + ", storage: {resources: {requests: {storage: 0}}}"), "Storage size can't be equal or less than zero"},
	{"negative size", dv(blank + ", pvc: {accessModes: [ReadWriteOnce], resources: {requests: {storage: -1Gi}}}"),
		"PVC size can't be equal or less than zero"},
	{"tiny size", dv(blank + ", storage: {resources: {requests: {storage: 500Ki}}}"), "Storage size should be at least 1MiB"},
	{"no size", dv(blank + ", storage: {}"), "Storage size is missing"},
	{"no size of a claim", dv(blank + ", pvc: {accessModes: [ReadWriteOnce], resources: {}}"), "PVC size is missing"},
	{"external and source", dv(blank + ", storage: {resources: {requests: {storage: 1Gi}}, dataSourceRef: {kind: X, name: it, apiGroup: z}}"),
		"External population is incompatible with Source and SourceRef"},
	{"external that disagrees", dv("storage: {resources: {requests: {storage: 1Gi}}, dataSourceRef: {kind: X, name: it, apiGroup: z}, " +
		"dataSource: {kind: X, name: w, apiGroup: z}}"), "DataSourceRef and DataSource must match"},
	{"several sources", dv(`source: {blank: {}, upload: {}},` + storage), "Multiple Data volume sources"},
	{"an empty source", dv("source: {}," + storage), "Missing Data volume source"},
	{"blank archive", dv(blank + ", contentType: archive," + storage), "SourceType cannot be blank and the contentType be archive"},
	{"archive on a device", dv(fromHTTP + ", contentType: archive, storage: {volumeMode: Block, resources: {requests: {storage: 1Gi}}}"),
		"contentType archive needs a filesystem"},
	{"archive from a registry", dv(`source: {registry: {url: "docker://r/i"}}, contentType: archive,` + storage),
		"contentType archive goes with source http or upload"},
	{"no URL", dv(`source: {http: {url: ""}},` + storage), "spec.source.http.url source URL is empty"},
	{"odd URL", dv(`source: {http: {url: "https://%zz"}},` + storage), "spec.source.http.url source URL is invalid"},
	{"odd scheme", dv(`source: {http: {url: "ftp://example.com/x"}},` + storage), `Invalid source URL scheme: "ftp", use http, https`},
	{"no host", dv(`source: {s3: {url: "s3:///key"}},` + storage), "spec.source.s3.url source URL has no host"},
	{"odd gcs", dv(`source: {gcs: {url: "file:///x"}},` + storage), `Invalid source URL scheme: "file"`},
	{"short checksum", dv(`source: {http: {url: "https://example.com/x", checksum: "sha256:abcd"}},` + storage),
		"must be algorithm:hex with a whole md5, sha1, sha256 or sha512 sum"},
	{"odd registry", dv(`source: {registry: {url: "http://r/i"}},` + storage), `Invalid source URL scheme: "http", use docker, oci-archive`},
	{"odd pull method", dv(`source: {registry: {url: "docker://r/i", pullMethod: fax}},` + storage), "PullMethod fax is neither"},
	{"image stream", dv("source: {registry: {imageStream: i}}," + storage), "Name the image in registry.url"},
	{"vddk", dv("source: {vddk: {}}," + storage), "import it with source http or upload, or fill a claim with virt-v2v"},
	{"imageio", dv(`source: {imageio: {url: "https://x", diskId: d1}},` + storage), "Download the disk image and import it with source http or upload"},
	{"stages of a container image", dv(image + `, checkpoints: [{previous: "", current: a}],` + storage), "checkpoints go with source http, s3 or gcs"},
	{"stages with a checksum", dv(`source: {http: {url: "https://example.com/x", checksum: "md5:` + strings.Repeat("0", 32) + `"}}, checkpoints: [{previous: "", current: a}],` + storage),
		"checkpoints do not go with a checksum"},
	{"stages out of order", dv(fromHTTP + `, checkpoints: [{previous: "", current: a}, {previous: c, current: b}],` + storage), `checkpoint "b" is what changed since "c"`},
	{"a stage twice", dv(fromHTTP + `, checkpoints: [{previous: "", current: a}, {previous: a, current: a}],` + storage), `checkpoint "a" is there twice`},
	{"a stage elsewhere", dv(fromHTTP + `, checkpoints: [{previous: "", current: "../a"}],` + storage), "is no name of a checkpoint"},

	{"two sources of a DataSource", `{kind: DataSource, metadata: {name: d, namespace: team}, spec: {source: {
		pvc: {namespace: a, name: b}, snapshot: {namespace: a, name: b}}}}`, "Multiple Data volume sources"},
	{"empty source of a DataSource", `{kind: DataSource, metadata: {name: d, namespace: team}, spec: {source: {pvc: {namespace: a, name: ""}}}}`,
		"spec.source.PVC source PVC is not valid"},

	{"cron without source", cron("", "* * * * *", "m", ""), "Missing source"},
	{"cron with a blank source", cron(blank, "* * * * *", "m", ""), "Missing source"},
	{"odd schedule", cron(image, "every day", "m", ""), "Illegal cron schedule"},
	{"negative number to keep", cron(image, "* * * * *", "m", "importsToKeep: -1,"), "Illegal ImportsToKeep value"},
	{"odd garbage collection", cron(image, "* * * * *", "m", "garbageCollect: Maybe,"), "Illegal GarbageCollect value"},
	{"no managed source", cron(image, "* * * * *", "", ""), "Illegal ManagedDataSource value"},
	{"cron with a long name", strings.Replace(cron(image, "* * * * *", "m", ""), "name: c,", "name: "+strings.Repeat("c", 64)+",", 1),
		"Name cannot be longer than 63 characters"},

	{"stages without a claim", `{kind: VolumeImportSource, metadata: {name: i, namespace: team}, spec: {
		source: {http: {url: "https://example.com/x"}}, checkpoints: [{previous: "", current: a}]}}`,
		"Unable to do multi-stage import without specifying a target claim"},
	{"import source vddk", `{kind: VolumeImportSource, metadata: {name: i, namespace: team}, spec: {source: {vddk: {}}}}`,
		"source vddk is not supported"},
	{"empty import source", `{kind: VolumeImportSource, metadata: {name: i, namespace: team}, spec: {}}`, "Missing Data volume source"},
	{"clone source of another kind", `{kind: VolumeCloneSource, metadata: {name: c, namespace: team}, spec: {source: {kind: Pod, name: p}}}`,
		"source must be a PersistentVolumeClaim or a VolumeSnapshot"},
	{"clone source without a name", `{kind: VolumeCloneSource, metadata: {name: c, namespace: team}, spec: {source: {
		kind: PersistentVolumeClaim, name: ""}}}`, "Missing source name"},
	{"object transfer", `{kind: ObjectTransfer, metadata: {name: o}, spec: {source: {kind: DataVolume, namespace: a, name: b}, target: {}}}`,
		"ObjectTransfer is not supported"},
	{"odd proxy", `{kind: CDI, metadata: {name: x}, spec: {config: {importProxy: {HTTPProxy: "proxy"}}}}`, "is not the URL of a proxy"},
	{"odd mirror", `{kind: CDI, metadata: {name: x, annotations: {berth.dev/registry-mirrors: "quay.io"}}, spec: {}}`, "is not PREFIX=PREFIX"},
	{"request above limit", `{kind: CDI, metadata: {name: x}, spec: {config: {podResourceRequirements: {
		requests: {memory: 2G}, limits: {memory: 1G}}}}}`, "a worker cannot request 2G of memory and be limited to 1G"},
}

const image = `source: {registry: {url: "docker://quay.io/containerdisks/fedora"}}`

func cron(source, schedule, managed, more string) string {
	if source != "" {
		source += ","
	}
	return fmt.Sprintf(`{kind: DataImportCron, metadata: {name: c, namespace: team}, spec: {%s schedule: %q, managedDataSource: %q,
		template: {spec: {%s %s}}}}`, more, schedule, managed, source, storage)
}

func TestRefusals(t *testing.T) {
	for _, row := range refusals {
		t.Run(row.name, func(t *testing.T) {
			err := admin.Create(t.Context(), object(row.object), client.DryRunAll)
			if err == nil {
				t.Fatalf("accepted %s", row.object)
			}
			if !strings.Contains(err.Error(), "denied the request: ") || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got  %v\nwant %s", err, row.want)
			}
		})
	}
}

// TestAccepts holds the checks to what they must let through.
func TestAccepts(t *testing.T) {
	for name, text := range map[string]string{
		"blank":                    dv(blank + "," + storage),
		"pvc":                      dv(fromHTTP + ", pvc: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}"),
		"checksum":                 dv(`source: {http: {url: "http://example.com/x", checksum: "md5:d41d8cd98f00b204e9800998ecf8427e"}},` + storage),
		"archive":                  dv(fromHTTP + ", contentType: archive," + storage),
		"registry":                 dv(`source: {registry: {url: "docker://quay.io/containerdisks/fedora", pullMethod: node}},` + storage),
		"s3":                       dv(`source: {s3: {url: "https://s3.example.com/bucket/key", secretRef: s}},` + storage),
		"gcs":                      dv(`source: {gcs: {url: "gs://bucket/key"}},` + storage),
		"upload as virtctl has it": dv("source: {upload: {}}, contentType: kubevirt," + storage),
		"clone without size":       dv("source: {pvc: {namespace: team, name: s}}, storage: {}"),
		"sourceRef to a backup":    dv("sourceRef: {kind: VolumeBackupSource, name: s}," + storage),
		"sourceRef without size":   dv("sourceRef: {kind: DataSource, name: s}, storage: {}"),
		"another populator":        dv("storage: {resources: {requests: {storage: 1Gi}}, dataSourceRef: {kind: X, name: it, apiGroup: z}}"),
		"generated name":           strings.Replace(dv(blank+","+storage), "name: v", "generateName: v-", 1),
		"cron":                     cron(image, "0 */6 * * *", "fedora", "garbageCollect: Outdated, importsToKeep: 0,"),
		"cron over http":           cron(fromHTTP, "@daily", "fedora", ""),
		"cron without a schedule":  cron(image, "", "fedora", ""),
		"DataSource":               `{kind: DataSource, metadata: {name: d, namespace: team}, spec: {source: {pvc: {namespace: a, name: b}}}}`,
		"DataSource that waits":    `{kind: DataSource, metadata: {name: d, namespace: team}, spec: {source: {}}}`,
		"import source":            `{kind: VolumeImportSource, metadata: {name: i, namespace: team}, spec: {source: {http: {url: "http://x/y"}}}}`,
		"upload source":            `{kind: VolumeUploadSource, metadata: {name: u, namespace: team}, spec: {}}`,
		"clone source":             `{kind: VolumeCloneSource, metadata: {name: c, namespace: team}, spec: {source: {kind: PersistentVolumeClaim, name: p}}}`,
		"clone source of snapshot": `{kind: VolumeCloneSource, metadata: {name: c, namespace: team}, spec: {source: {
			apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: p}}}`,
		"overhead of everything": `{kind: CDI, metadata: {name: x}, spec: {config: {filesystemOverhead: {global: "1", storageClass: {a: "1"}}}}}`,
		"CDI":                    `{kind: CDI, metadata: {name: x}, spec: {config: {filesystemOverhead: {global: "0.1"}, importProxy: {HTTPProxy: "http://p:3128"}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := admin.Create(t.Context(), object(text), client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUpdates changes what may change and what may not.
func TestUpdates(t *testing.T) {
	for name, row := range map[string]struct{ object, patch, want string }{
		"a volume's labels": {dv(fromHTTP + "," + storage), `{metadata: {labels: {a: b}}}`, ""},
		"a volume's source": {dv(fromHTTP + "," + storage), `{spec: {source: {http: {url: "https://example.com/other"}}}}`, "Cannot update DataVolume Spec"},
		"a volume's size":   {dv(fromHTTP + "," + storage), `{spec: {storage: {resources: {requests: {storage: 2Gi}}}}}`, "Cannot update DataVolume Spec"},
		"a volume's stages": {dv(fromHTTP + "," + storage), `{spec: {finalCheckpoint: true}}`, ""},
		"a cron":            {cron(image, "* * * * *", "m", ""), `{spec: {schedule: "@daily"}}`, "Cannot update DataImportCron Spec"},
		"a cron's labels":   {cron(image, "* * * * *", "m", ""), `{metadata: {labels: {a: b}}}`, ""},
		"an import source": {`{kind: VolumeImportSource, metadata: {name: i, namespace: team}, spec: {source: {blank: {}}}}`,
			`{spec: {preallocation: true}}`, "Cannot update VolumeImportSource Spec"},
		"an upload source": {`{kind: VolumeUploadSource, metadata: {name: u, namespace: team}, spec: {}}`,
			`{spec: {preallocation: true}}`, "Cannot update VolumeUploadSource Spec"},
		"a clone source": {`{kind: VolumeCloneSource, metadata: {name: c, namespace: team}, spec: {source: {kind: PersistentVolumeClaim, name: p}}}`,
			`{spec: {source: {name: newer}}}`, ""},
		"a DataSource": {`{kind: DataSource, metadata: {name: d, namespace: team}, spec: {source: {pvc: {namespace: a, name: b}}}}`,
			`{spec: {source: {pvc: {name: newer}}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u := object(row.object)
			create(t, admin, u)
			err := admin.Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", toJSON(t, row.patch)))
			switch {
			case row.want == "" && err != nil:
				t.Error(err)
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Errorf("got %v, want %s", err, row.want)
			}
		})
	}
}

// TestUpdateWhileDeleting lets finalizers go whatever else changed with them, but for the source: that never changes, which the
// schema says, and a schema does not know that a volume is being deleted.
func TestUpdateWhileDeleting(t *testing.T) {
	u := object(dv(fromHTTP + "," + storage))
	u.SetFinalizers([]string{"example.com/hold"})
	create(t, admin, u)
	if err := admin.Delete(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	other := toJSON(t, `{metadata: {finalizers: null}, spec: {source: {http: {url: "https://example.com/other"}}}}`)
	if err := admin.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", other)); err == nil {
		t.Error("the source was changed")
	}
	patch := `{metadata: {finalizers: null}, spec: {preallocation: true, priorityClassName: other}}`
	if err := admin.Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", toJSON(t, patch))); err != nil {
		t.Error(err)
	}
}

// TestDestinationExists: a claim that exists already belongs to its user, unless one of the two says otherwise.
func TestDestinationExists(t *testing.T) {
	claim := object(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: v, namespace: team}, spec: {
		accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`)
	create(t, admin, claim)
	plain := dv(blank + "," + storage)
	annotated := func(a string) string {
		return strings.Replace(plain, "namespace: team}", fmt.Sprintf("namespace: team, annotations: {cdi.kubevirt.io/%s}}", a), 1)
	}
	const want = "Destination PVC team/v already exists"
	eventually(t, "the claim is seen", func() (bool, error) {
		err := admin.Create(t.Context(), object(plain), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), want), err
	})
	for _, a := range []string{`allowClaimAdoption: "true"`, `storage.prePopulated: v`, `storage.checkStaticVolume: ""`} {
		if err := admin.Create(t.Context(), object(annotated(a)), client.DryRunAll); err != nil {
			t.Errorf("with %s: %v", a, err)
		}
	}
	if err := admin.Create(t.Context(), object(annotated(`allowClaimAdoption: "false"`)), client.DryRunAll); err == nil {
		t.Error("a volume that must not adopt took a claim")
	}
	owner := metav1.OwnerReference{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume", Name: "v", UID: "of-one-that-is-gone", Controller: ptr.To(true)}
	claim.SetOwnerReferences([]metav1.OwnerReference{owner})
	must(t, admin.Update(t.Context(), claim))
	eventually(t, "a claim of a deleted volume of the name is in nobody's way", func() (bool, error) {
		err := admin.Create(t.Context(), object(plain), client.DryRunAll)
		return err == nil, err
	})
	claim.SetOwnerReferences(nil)
	claim.SetAnnotations(map[string]string{"cdi.kubevirt.io/storage.populatedFor": "v"})
	if err := admin.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a restored claim is taken", func() (bool, error) {
		err := admin.Create(t.Context(), object(plain), client.DryRunAll)
		return err == nil, err
	})
}

// TestDeleteCDI keeps the CDI resource as long as it asks to be kept.
func TestDeleteCDI(t *testing.T) {
	cdi := object(`{kind: CDI, metadata: {name: kept}, spec: {uninstallStrategy: BlockUninstallIfWorkloadsExist}}`)
	create(t, admin, cdi)
	create(t, admin, object(dv(blank+","+storage)))
	const want = "there are still DataVolumes, for example team/v"
	eventually(t, "the volume keeps it", func() (bool, error) {
		err := admin.Delete(t.Context(), cdi, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), want), err
	})
	if err := admin.Patch(t.Context(), cdi, client.RawPatch("application/merge-patch+json",
		toJSON(t, `{spec: {uninstallStrategy: RemoveWorkloads}}`))); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), cdi, client.DryRunAll); err != nil {
		t.Error(err)
	}
}
