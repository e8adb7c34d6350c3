package claim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/pkg/claim"
)

const (
	rwo = corev1.ReadWriteOnce
	rwx = corev1.ReadWriteMany

	block = corev1.PersistentVolumeBlock
	file  = corev1.PersistentVolumeFilesystem
)

func set(mode corev1.PersistentVolumeMode, access ...corev1.PersistentVolumeAccessMode) cdiv1.ClaimPropertySet {
	return cdiv1.ClaimPropertySet{AccessModes: access, VolumeMode: &mode}
}

func profile(name string, sets ...cdiv1.ClaimPropertySet) cdiv1.StorageProfile {
	return cdiv1.StorageProfile{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     cdiv1.StorageProfileStatus{ClaimPropertySets: sets},
	}
}

func class(name, provisioner string, annotations ...string) storagev1.StorageClass {
	c := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	for _, a := range annotations {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, a, "true")
	}
	return c
}

// storage returns the cluster most rows of the table run in: an ordinary default class, one for machines, one of an unknown provisioner.
func storage() claim.Cluster {
	overridden := profile("overridden", set(block, rwx))
	overridden.Spec.ClaimPropertySets = []cdiv1.ClaimPropertySet{set(file, rwo)}
	large := profile("large", set(block, rwo), set(file, rwo))
	large.Annotations = map[string]string{claim.MinimumSizeAnnotation: "8Gi"}
	return claim.Cluster{
		Classes: []storagev1.StorageClass{
			class("plain", "rancher.io/local-path", claim.DefaultClassAnnotation),
			class("virt", "rbd.csi.ceph.com", claim.DefaultVirtClassAnnotation),
			class("unknown", "example.com/tape"),
			class("fresh", "topolvm.io"), // its profile has not been made yet
			class("overridden", "rbd.csi.ceph.com"),
			class("large", "example.com/jukebox"),
		},
		Profiles: []cdiv1.StorageProfile{
			profile("plain", set(file, rwo)),
			profile("virt", set(block, rwx), set(block, rwo), set(file, rwo)),
			profile("unknown", cdiv1.ClaimPropertySet{}),
			overridden,
			large,
		},
		Overhead: &cdiv1.FilesystemOverhead{Global: "0.06", StorageClass: map[string]cdiv1.Percent{"plain": "0.1"}},
	}
}

// spec builds a claim from what a row says: a class ("-" is none at all), a size, a volume mode, access modes.
func spec(class, size string, mode corev1.PersistentVolumeMode, access ...corev1.PersistentVolumeAccessMode,
) corev1.PersistentVolumeClaimSpec {
	s := corev1.PersistentVolumeClaimSpec{AccessModes: access}
	if class != "-" {
		s.StorageClassName = &class
	}
	if size != "" {
		s.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	if mode != "" {
		s.VolumeMode = &mode
	}
	return s
}

func disk(s corev1.PersistentVolumeClaimSpec) claim.Request {
	return claim.Request{Spec: s, SizeIsDisk: true}
}

func clone(r claim.Request, mode corev1.PersistentVolumeMode, capacity, diskSize string) claim.Request {
	r.Source = &claim.Source{Name: "PersistentVolumeClaim golden/fedora", Class: "plain", VolumeMode: mode,
		Capacity: resource.MustParse(capacity)}
	if diskSize != "" {
		r.Source.Disk = resource.MustParse(diskSize)
	}
	return r
}

func TestComplete(t *testing.T) {
	archive := disk(spec("-", "1Gi", ""))
	archive.Archive = true
	preferred := disk(spec("-", "1Gi", ""))
	preferred.PreferredClass = "plain"
	for name, row := range map[string]struct {
		request claim.Request
		want    corev1.PersistentVolumeClaimSpec
		filled  []string
	}{
		"nothing but a size": {
			request: disk(spec("-", "1Gi", "")),
			want:    spec("virt", "1Gi", block, rwx),
			filled: []string{
				"storageClassName virt: the default class for virtual machines",
				"volumeMode Block: choice 1 of 3 of StorageProfile virt",
				"accessModes ReadWriteMany: choice 1 of 3 of StorageProfile virt",
			},
		},
		"everything": {request: claim.Request{Spec: spec("plain", "1Gi", block, rwx)}, want: spec("plain", "1Gi", block, rwx)},
		"volume mode asked for, access mode chosen": {
			request: disk(spec("virt", "1Gi", file)),
			want:    spec("virt", "1106Mi", file, rwo), // 1024 / 0.94 = 1089.4, but ext4 keeps 48 MiB and 3 % of that
			filled: []string{
				"accessModes ReadWriteOnce: choice 3 of 3 of StorageProfile virt, the first with Filesystem",
				"resources.requests.storage 1106Mi: a disk of 1Gi and what a small ext4 keeps for itself",
			},
		},
		"access mode asked for, volume mode chosen": {
			request: disk(spec("virt", "1Gi", "", rwo)),
			want:    spec("virt", "1Gi", block, rwo),
			filled:  []string{"volumeMode Block: choice 2 of 3 of StorageProfile virt, the first with ReadWriteOnce"},
		},
		"an access mode the profile does not know": {
			request: disk(spec("virt", "4700Mi", "", corev1.ReadOnlyMany)),
			want:    spec("virt", "5000Mi", file, corev1.ReadOnlyMany),
			filled: []string{
				"volumeMode Filesystem: Kubernetes' default; nothing is known of a volume mode for ReadOnlyMany here",
				"resources.requests.storage 5000Mi: a disk of 4700Mi and 0.06 of the claim for its filesystem",
			},
		},
		"volume mode FromStorageProfile": {
			request: claim.Request{Spec: spec("virt", "1Gi", cdiv1.PersistentVolumeFromStorageProfile)},
			want:    spec("virt", "1Gi", block, rwx),
			filled: []string{
				"volumeMode Block: choice 1 of 3 of StorageProfile virt",
				"accessModes ReadWriteMany: choice 1 of 3 of StorageProfile virt",
			},
		},
		"overhead of the class": {
			request: disk(spec("plain", "900Mi", "")),
			want:    spec("plain", "1000Mi", file, rwo),
			filled: []string{
				"volumeMode Filesystem: choice 1 of 1 of StorageProfile plain",
				"accessModes ReadWriteOnce: choice 1 of 1 of StorageProfile plain",
				"resources.requests.storage 1000Mi: a disk of 900Mi and 0.1 of the claim for its filesystem",
			},
		},
		"the size of a claim stays": {
			request: claim.Request{Spec: spec("plain", "900Mi", "")},
			want:    spec("plain", "900Mi", file, rwo),
			filled: []string{
				"volumeMode Filesystem: choice 1 of 1 of StorageProfile plain",
				"accessModes ReadWriteOnce: choice 1 of 1 of StorageProfile plain",
			},
		},
		"an administrator's choice wins": {
			request: disk(spec("overridden", "4700Mi", "")),
			want:    spec("overridden", "5000Mi", file, rwo),
			filled: []string{
				"volumeMode Filesystem: choice 1 of 1 of StorageProfile overridden",
				"accessModes ReadWriteOnce: choice 1 of 1 of StorageProfile overridden",
				"resources.requests.storage 5000Mi: a disk of 4700Mi and 0.06 of the claim for its filesystem",
			},
		},
		"a class whose profile is not there yet": {
			request: disk(spec("fresh", "1Gi", "")),
			want:    spec("fresh", "1Gi", block, rwo),
			filled: []string{
				"volumeMode Block: choice 1 of 2 of provisioner topolvm.io",
				"accessModes ReadWriteOnce: choice 1 of 2 of provisioner topolvm.io",
			},
		},
		"smaller than the class can make": {
			request: disk(spec("large", "1Gi", block, rwo)),
			want:    spec("large", "8Gi", block, rwo),
			filled:  []string{"resources.requests.storage 8Gi: the smallest claim StorageProfile large allows"},
		},
		"an archive needs a filesystem and no machine's class": {
			request: archive,
			want:    spec("plain", "1138Mi", file, rwo), // 1024 / 0.9 = 1137.8
			filled: []string{
				"storageClassName plain: the default class of the cluster",
				"volumeMode Filesystem: an archive is unpacked into a filesystem",
				"accessModes ReadWriteOnce: choice 1 of 1 of StorageProfile plain, the first with Filesystem",
				"resources.requests.storage 1138Mi: a disk of 1Gi and 0.1 of the claim for its filesystem",
			},
		},
		"the class of a preference": {
			request: preferred,
			want:    spec("plain", "1138Mi", file, rwo),
			filled: []string{
				"storageClassName plain: the preferred class of the machine's preference",
				"volumeMode Filesystem: choice 1 of 1 of StorageProfile plain",
				"accessModes ReadWriteOnce: choice 1 of 1 of StorageProfile plain",
				"resources.requests.storage 1138Mi: a disk of 1Gi and 0.1 of the claim for its filesystem",
			},
		},
		"no class on purpose": {request: claim.Request{Spec: spec("", "1Gi", file, rwo)}, want: spec("", "1Gi", file, rwo)},
		"a class that is no object": {
			request: claim.Request{Spec: spec("by-hand", "1Gi", file, rwo)},
			want:    spec("by-hand", "1Gi", file, rwo),
		},
		"clone of a device onto a device": {
			request: clone(disk(spec("virt", "", block, rwo)), block, "3Gi", ""),
			want:    spec("virt", "3Gi", block, rwo),
			filled:  []string{"resources.requests.storage 3Gi: the disk in PersistentVolumeClaim golden/fedora"},
		},
		"clone of a device into a filesystem": {
			request: clone(disk(spec("virt", "", file, rwo)), block, "4700Mi", ""),
			want:    spec("virt", "5000Mi", file, rwo),
			filled: []string{"resources.requests.storage 5000Mi: the disk of 4700Mi in PersistentVolumeClaim golden/fedora" +
				" and 0.06 of the claim for its filesystem"},
		},
		"clone of a measured file onto a device": {
			request: clone(disk(spec("virt", "", block, rwo)), file, "1000Mi", "900Mi"),
			want:    spec("virt", "1000Mi", block, rwo),
			filled:  []string{"resources.requests.storage 1000Mi: the size of PersistentVolumeClaim golden/fedora"},
		},
		"clone of a file into a filesystem": {
			request: clone(disk(spec("virt", "", file, rwo)), file, "1000Mi", ""),
			want:    spec("virt", "1000Mi", file, rwo),
			filled:  []string{"resources.requests.storage 1000Mi: the size of PersistentVolumeClaim golden/fedora"},
		},
		"clone of a small file from a large filesystem": {
			request: clone(disk(spec("virt", "", file, rwo)), file, "1000Mi", "100Mi"),
			want:    spec("virt", "1000Mi", file, rwo),
			filled:  []string{"resources.requests.storage 1000Mi: the size of PersistentVolumeClaim golden/fedora"},
		},
		"clone of an unmeasured file onto a device of the disk's size": {
			request: clone(disk(spec("virt", "900Mi", block, rwo)), file, "1000Mi", ""),
			want:    spec("virt", "900Mi", block, rwo),
		},
		"clone into something larger": {
			request: clone(disk(spec("virt", "5Gi", block, rwo)), block, "3Gi", ""),
			want:    spec("virt", "5Gi", block, rwo),
		},
		"clone to the least size of the class": {
			request: clone(disk(spec("large", "", block, rwo)), block, "3Gi", ""),
			want:    spec("large", "8Gi", block, rwo),
			filled:  []string{"resources.requests.storage 8Gi: the smallest claim StorageProfile large allows"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := row.request.Spec.DeepCopy()
			got, err := claim.Complete(row.request, storage())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			var filled []string
			for _, f := range got.Filled {
				filled = append(filled, f.String())
			}
			if diff := cmp.Diff(row.filled, filled); diff != "" {
				t.Errorf("filled (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(*before, row.request.Spec); diff != "" {
				t.Errorf("the request was changed (-before +after):\n%s", diff)
			}
			again, err := claim.Complete(claim.Request{Spec: got.Spec}, storage())
			if err != nil || len(again.Filled) > 0 {
				t.Errorf("completing a complete claim filled %v, %v", again.Filled, err)
			}
		})
	}
}

func TestCompleteCannot(t *testing.T) {
	empty := storage()
	empty.Classes, empty.Profiles = nil, nil
	greedy := storage()
	greedy.Overhead = &cdiv1.FilesystemOverhead{Global: "1"}
	odd := storage()
	odd.Overhead = &cdiv1.FilesystemOverhead{Global: "six percent"}
	for name, row := range map[string]struct {
		request claim.Request
		cluster claim.Cluster
		want    claim.Error
	}{
		"no class at all": {disk(spec("-", "1Gi", "")), empty, claim.Error{
			Lack: claim.LacksClass, Text: "PVC spec is missing accessMode and no storageClass to choose profile",
			Advice: `name a storageClassName or accessModes, or mark a class as default with the annotation ` +
				`storageclass.kubevirt.io/is-default-virt-class: "true"`}},
		"no class on purpose": {disk(spec("", "1Gi", block)), storage(), claim.Error{
			Lack: claim.LacksClass, Text: "PVC spec is missing accessMode and no storageClass to choose profile",
			Advice: `name a storageClassName or accessModes, or mark a class as default with the annotation ` +
				`storageclass.kubevirt.io/is-default-virt-class: "true"`}},
		"empty profile": {disk(spec("unknown", "1Gi", "")), storage(), claim.Error{
			Lack: claim.LacksModes, Profile: "unknown",
			Text: "Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile unknown",
			Advice: "nothing is known of provisioner example.com/tape; write accessModes into the claim, " +
				"or claimPropertySets into the spec of StorageProfile unknown"}},
		"empty profile, volume mode given": {disk(spec("unknown", "1Gi", block)), storage(), claim.Error{
			Lack: claim.LacksAccessMode, Profile: "unknown",
			Text: "Spec is missing accessMode and cannot get access mode from StorageProfile unknown",
			Advice: "nothing is known of provisioner example.com/tape; write accessModes into the claim, " +
				"or claimPropertySets into the spec of StorageProfile unknown"}},
		"profile without the volume mode": {disk(spec("plain", "1Gi", block)), storage(), claim.Error{
			Lack: claim.LacksAccessMode, Profile: "plain",
			Text: "Spec is missing accessMode and cannot get access mode from StorageProfile plain",
			Advice: "StorageProfile plain offers ReadWriteOnce Filesystem only; write accessModes into the claim, " +
				"or claimPropertySets into the spec of StorageProfile plain"}},
		"class that does not exist": {disk(spec("typo", "1Gi", "")), storage(), claim.Error{
			Lack: claim.LacksModes, Profile: "typo",
			Text:   "Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile typo",
			Advice: "there is no StorageClass typo; create it, or write accessModes and volumeMode into the claim"}},
		"no size": {disk(spec("virt", "", "")), storage(), claim.Error{
			Lack: claim.LacksSize, Text: "Storage size is missing", Advice: "write resources.requests.storage"}},
		"no size of a claim": {claim.Request{Spec: spec("virt", "", "")}, storage(), claim.Error{
			Lack: claim.LacksSize, Text: "PVC size is missing", Advice: "write resources.requests.storage"}},
		"smaller than the source": {clone(disk(spec("virt", "2Gi", block, rwo)), block, "3Gi", ""), storage(), claim.Error{
			Lack: claim.LacksRoomForSource,
			Text: "target resources requests storage size is smaller than the source: 2Gi is less than 3Gi, " +
				"the disk in PersistentVolumeClaim golden/fedora",
			Advice: "ask for at least 3Gi, or leave the size out to have it taken from the source"}},
		"smaller than the unmeasured file": {clone(disk(spec("virt", "899Mi", block, rwo)), file, "1000Mi", ""), storage(), claim.Error{
			Lack: claim.LacksRoomForSource,
			Text: "target resources requests storage size is smaller than the source: 899Mi is less than 900Mi, " +
				"the size of PersistentVolumeClaim golden/fedora",
			Advice: "ask for at least 900Mi, or leave the size out to have it taken from the source"}},
		"overhead of everything": {disk(spec("virt", "1Gi", file, rwo)), greedy, claim.Error{
			Lack: claim.LacksUsableOverhead, Text: "filesystem overhead 1 leaves no room for data",
			Advice: "correct spec.config.filesystemOverhead of the CDI resource"}},
		"overhead that is no number": {clone(disk(spec("virt", "", file, rwo)), block, "1Gi", ""), odd, claim.Error{
			Lack:   claim.LacksUsableOverhead,
			Text:   `filesystem overhead "six percent" is not a number from 0 to 1 with at most three decimals`,
			Advice: "correct spec.config.filesystemOverhead of the CDI resource"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := claim.Complete(row.request, row.cluster)
			var got *claim.Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v, want an Error", err)
			}
			if diff := cmp.Diff(row.want, *got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFrom(t *testing.T) {
	mode := block
	storageSpec := &cdiv1.StorageSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{rwo}, VolumeName: "pv", VolumeMode: &mode,
		Selector:      &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}},
		DataSourceRef: &corev1.TypedObjectReference{Kind: "VolumeSnapshot", Name: "s"},
	}
	got := claim.FromStorage(storageSpec)
	want := corev1.PersistentVolumeClaimSpec{
		AccessModes: storageSpec.AccessModes, VolumeName: "pv", VolumeMode: &mode,
		Selector: storageSpec.Selector, DataSourceRef: storageSpec.DataSourceRef,
	}
	if diff := cmp.Diff(claim.Request{Spec: want, SizeIsDisk: true}, got); diff != "" {
		t.Errorf("spec.storage (-want +got):\n%s", diff)
	}
	pvc := spec("plain", "1Gi", "", rwo)
	got = claim.FromPVC(&pvc)
	if *got.Spec.VolumeMode != file || got.SizeIsDisk || pvc.VolumeMode != nil {
		t.Errorf("spec.pvc: got %+v from %+v", got, pvc)
	}
	if _, err := claim.Complete(claim.FromStorage(nil), storage()); err == nil {
		t.Error("an empty spec was completed")
	}
}

func TestDefaultClasses(t *testing.T) {
	old, young, younger := class("a-old", "x", claim.DefaultClassAnnotation), class("b-young", "x", claim.DefaultClassAnnotation),
		class("c-young", "x", "storageclass.beta.kubernetes.io/is-default-class")
	old.CreationTimestamp = metav1.NewTime(time.Unix(100, 0))
	young.CreationTimestamp = metav1.NewTime(time.Unix(200, 0))
	younger.CreationTimestamp = young.CreationTimestamp
	denied := class("d", "x")
	denied.Annotations = map[string]string{claim.DefaultClassAnnotation: "false"}
	for name, row := range map[string]struct {
		classes []storagev1.StorageClass
		want    string
	}{
		"none":                 {nil, ""},
		"marked false":         {[]storagev1.StorageClass{denied}, ""},
		"one":                  {[]storagev1.StorageClass{denied, old}, "a-old"},
		"newest wins":          {[]storagev1.StorageClass{old, young}, "b-young"},
		"of a kind, by name":   {[]storagev1.StorageClass{younger, young, old}, "b-young"},
		"the old annotation":   {[]storagev1.StorageClass{old, younger}, "c-young"},
		"order does not count": {[]storagev1.StorageClass{young, younger, old}, "b-young"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if c := claim.DefaultClass(row.classes); c != nil {
				got = c.Name
			}
			if got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if c := claim.DefaultVirtClass(row.classes); c != nil {
				t.Errorf("%s became the default class for virtual machines", c.Name)
			}
		})
	}
}

// TestRoundedSource: a copy that asks for what its source asked for is enough where the same storage makes both, in another class too, and nowhere
// else.
func TestRoundedSource(t *testing.T) {
	for _, row := range []struct {
		from, to string
		ok       bool
	}{{"plain", "plain", true}, {"virt", "overridden", true}, {"plain", "virt", false}, {"gone", "virt", false}, {"by-hand", "by-hand", false}} {
		for _, mode := range []corev1.PersistentVolumeMode{file, block} {
			r := clone(disk(spec(row.to, "980M", mode, rwo)), mode, "1Gi", "")
			r.Source.Class, r.Source.Requested = row.from, resource.MustParse("980M")
			known := storage()
			known.Classes = append(known.Classes, class("by-hand", claim.NoProvisioner))
			if _, err := claim.Complete(r, known); (err == nil) != row.ok {
				t.Errorf("%s from class %s to %s: %v", mode, row.from, row.to, err)
			}
		}
	}
	r := clone(disk(spec("plain", "980M", file, rwo)), file, "1Gi", "990Mi")
	r.Source.Requested = resource.MustParse("500M")
	if _, err := claim.Complete(r, storage()); err == nil {
		t.Error("the disk in the source, as it was measured, is larger than the copy")
	}
}
